"""Time of `hqlt status` and `hqlt report` for a study of 10,000 finished cells.

10 arms x 10 crossed windows x 10 learning rates x 10 seeds.  Nothing is trained: the results are random, and are
written by the lab's own ledger, outcomes and metrics into a journal and folders like those of a real study.

    python benchmarks/many_cells.py [seeds] [--keep FOLDER]      10 seeds are 10,000 cells
    HQLT_STORE=postgresql://... python benchmarks/many_cells.py  the same in a database

Also measures `hqlt plan` and `hqlt status` after one arm was added.
"""

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from hqlt_lab.experiment.load_experiment import Experiment, load_experiment
from hqlt_lab.rundir.cell_file import write_cell
from hqlt_lab.rundir.metrics import MetricsWriter
from hqlt_lab.rundir.outcome import Outcome
from hqlt_lab.rundir.sync_state import SyncState
from hqlt_lab.study.ledger.cell_record import CellRef
from hqlt_lab.study.ledger.ledger import Ledger
from hqlt_lab.study.ledger.study_store import STORE_VARIABLE, StudyStore
from hqlt_lab.study.run_study import open_plan
from hqlt_lab.track.provenance import cell_code_hashes

STUDY = """
question: How long do commands that only read take in a large study?
task: {{name: parity, train_length: [3, 40], test_length: [40, 256]}}
model: {{width: 64, heads: 2, layers: 2, update_rule: delta, timing: {{name: synchronous, window: 8}}, positions: none}}
train: {{steps: 200}}
arms:
  synchronous: {{}}
  {arms}
cross: {{model.timing.window: [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]}}
tune: {{train.lr: [1e-4, 2e-4, 3e-4, 5e-4, 7e-4, 1e-3, 2e-3, 3e-3, 5e-3, 1e-2]}}
seeds: {seeds}
measure: {{solved: 95}}
"""
TIMINGS, RULES = (
    ("synchronous", "delayed_stream"),
    ("delta", "gated_delta", "retention", "linear_attention", "delta_product"),
)
METRICS = (
    "loss",
    "accuracy",
    "normalized_accuracy",
    *(f"accuracy/length_{low}_{low + 39}" for low in range(40, 240, 40)),
)


def format_arms() -> str:
    """Return the YAML lines of all arms: every rule with every timing, except the base itself."""
    pairs = [(rule, timing) for timing in TIMINGS for rule in RULES if (rule, timing) != ("delta", "synchronous")]
    return "\n  ".join(
        f"{rule}_{timing}: {{model.update_rule: {rule}, model.timing.name: {timing}}}" for rule, timing in pairs
    )


def write_finished_cells(experiment: Experiment, store: StudyStore) -> None:
    """Write folder and ledger entry of every cell, with random results."""
    with store.session():
        plan = open_plan(experiment, store)
        for cell_ref in plan.list_cells():
            folder = store.cell_folder(cell_ref.key)
            cell = plan.cells_by_key[cell_ref.key]
            write_cell(folder, cell)
            outcome = draw_outcome(cell_ref)
            outcome.write(folder)
            SyncState(uri="sqlite:///mlflow.db", experiment="1", run=cell_ref.key * 2).write(folder)
            with MetricsWriter(folder) as metrics:
                for step in range(10, 201, 10):
                    metrics.write_row(step, {"train/loss": outcome.metrics["train/loss"] * (1 + 1 / step)})
            study_name = plan.study_name_by_arm[cell_ref.arm.title]
            record_outcome(plan.ledger, study_name, cell_ref, cell_code_hashes(cell), outcome)


def move_to_database(store: StudyStore, url: str) -> None:
    """Copy the Optuna studies of a journal to a database."""
    # renamed, because a study that has a journal does not use a database
    renamed = store.journal_file.rename(store.journal_file.with_suffix(".moved"))
    storage = JournalStorage(JournalFileBackend(str(renamed)))
    os.environ[STORE_VARIABLE] = url
    database = StudyStore(store.root, store.name)
    with database.session():
        for name in optuna.get_all_study_names(storage):
            optuna.copy_study(
                from_study_name=name,
                from_storage=storage,
                to_storage=database.backend.open_storage(),
                to_study_name=database.backend.study_prefix + name,
            )


def draw_outcome(cell_ref: CellRef) -> Outcome:
    """Return random results of a cell, which are the same every time."""
    rng = random.Random(cell_ref.key)
    metrics = {f"{split}/{name}": 100 * rng.random() for split in ("valid", "test") for name in METRICS}
    errors = {name: rng.random() for name in metrics if name.startswith("test/")}
    return Outcome(
        status="done", step=200, metrics=metrics | {"train/loss": rng.random()}, seconds=10.0, tokens_per_second=1e4,
        parameters=123456, state_bytes=4096, flops_per_token=1e6, errors=errors,
    )  # fmt: skip


def record_outcome(ledger: Ledger, study_name: str, cell_ref: CellRef, code: dict[str, str], outcome: Outcome) -> None:
    """Write the ledger entries of a cell, as the coordinator does."""
    point = dict(cell_ref.point or {})
    cell_attributes = {
        "key": cell_ref.key,
        "arm": cell_ref.arm.title.to_dict(),
        "seed": cell_ref.seed,
        "point": point,
        "is_reported": True,
        "code": code,
    }
    attempt = ledger.begin_attempt(study_name, ledger.ask_trial(study_name, {}), cell_attributes)
    details = {name: value for name, value in vars(outcome).items() if name not in ("status", "message")}
    ledger.finish_attempt(attempt, "done", outcome.metrics["valid/normalized_accuracy"], **details, why="")


def time_command(*arguments: str, folder: Path) -> dict[str, float]:
    """Return the wall time and the CPU time of a command in seconds."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [Path(sys.executable).parent / "hqlt", *arguments], cwd=folder, stdout=subprocess.DEVNULL, check=True
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"seconds": round(wall, 1), "processor": round(after.ru_utime - before.ru_utime, 1)}


def main(seeds: int, folder: Path) -> None:
    (folder / "many.yaml").write_text(STUDY.format(arms=format_arms(), seeds=seeds))
    url = os.environ.pop(STORE_VARIABLE, "")
    if not (folder / "runs").exists():
        start, store = time.perf_counter(), StudyStore(folder / "runs", "many")
        write_finished_cells(load_experiment(folder / "many.yaml"), store)
        if url:
            move_to_database(store, url)
        print(f"made in {time.perf_counter() - start:.0f} s", file=sys.stderr)
    os.environ |= {STORE_VARIABLE: url} if url else {}
    # the first call writes the cached plan, as `hqlt run` does
    times = {"first status": time_command("status", "many.yaml", folder=folder)}
    times |= {command: time_command(command, "many.yaml", folder=folder) for command in ("status", "report")}
    (folder / "more").mkdir(exist_ok=True)
    more = (folder / "many.yaml").read_text().replace("arms:", "arms:\n  one_more: {model.width: 32}")
    (folder / "more/many.yaml").write_text(more)
    times["plan with one arm more"] = time_command("plan", "more/many.yaml", folder=folder)
    times["status with one arm more"] = time_command("status", "more/many.yaml", folder=folder)
    print(json.dumps({"cells": 1000 * seeds} | times))


if __name__ == "__main__":
    count = int(sys.argv[1]) if sys.argv[1:2] and sys.argv[1].isdigit() else 10
    if "--keep" in sys.argv:
        folder = Path(sys.argv[sys.argv.index("--keep") + 1])
        folder.mkdir(parents=True, exist_ok=True)
        main(count, folder)
    else:
        with tempfile.TemporaryDirectory() as name:
            main(count, Path(name))
