"""How long it takes to look at a study of 10,000 finished cells: `hqlt status` and `hqlt report`, as they are typed.

10 arms x 10 crossed windows x 10 learning rates x 10 seeds.  Nothing is trained: the cells' numbers are drawn, and
written by the lab's own ledger, outcomes and curves, into a journal and folders like those of a real study.

    python benchmarks/many_cells.py [seeds] [--keep FOLDER]      10 seeds are 10,000 cells
    HQLT_STORE=postgresql://... python benchmarks/many_cells.py  the same in a database

Also how long it takes to plan the study with one arm more, and to see that nothing else is to be trained.
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

from hqlt_lab.experiment.experiment import Experiment, load
from hqlt_lab.study.ledger import Ledger
from hqlt_lab.study.place import Place
from hqlt_lab.study.run import open_agenda
from hqlt_lab.study.store import ENVIRONMENT, Store
from hqlt_lab.track.provenance import code_of
from hqlt_lab.track.sent import Sent
from hqlt_lab.track.spool import Spool
from hqlt_lab.train.claim import claim
from hqlt_lab.train.outcome import Outcome

STUDY = """
question: What does a large study cost to be looked at?
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
MEASURES = (
    "loss",
    "accuracy",
    "normalised_accuracy",
    *(f"accuracy/length_{low}_{low + 39}" for low in range(40, 240, 40)),
)


def arms() -> str:
    """Every rule with every timing, without the base itself."""
    pairs = [(rule, timing) for timing in TIMINGS for rule in RULES if (rule, timing) != ("delta", "synchronous")]
    return "\n  ".join(
        f"{rule}_{timing}: {{model.update_rule: {rule}, model.timing.name: {timing}}}" for rule, timing in pairs
    )


def fill(experiment: Experiment, store: Store) -> None:
    """Every cell is done."""
    with store.owned():
        agenda = open_agenda(experiment, store)
        for place in agenda.places():
            folder = store.cell(place.key)
            cell = agenda.known[place.key]
            claim(folder, cell)
            outcome = drawn(place)
            outcome.write(folder)
            Sent(uri="sqlite:///mlflow.db", experiment="1", run=place.key * 2).note(folder)
            with Spool(folder) as spool:
                for step in range(10, 201, 10):
                    spool.add(step, {"train/loss": outcome.metrics["train/loss"] * (1 + 1 / step)})
            note(agenda.ledger, agenda.studies[place.arm.title], place, code_of(cell), outcome)


def move(store: Store, url: str) -> None:
    """The journal's studies into a database."""
    moved = store.journal.rename(store.journal.with_suffix(".moved"))  # with one in its place it stays a journal's
    storage = JournalStorage(JournalFileBackend(str(moved)))
    os.environ[ENVIRONMENT] = url
    database = Store(store.root, store.name)
    with database.owned():
        for name in optuna.get_all_study_names(storage):
            optuna.copy_study(
                from_study_name=name,
                from_storage=storage,
                to_storage=database.book.storage(),
                to_study_name=database.book.prefix + name,
            )


def drawn(place: Place) -> Outcome:
    """Some numbers for a cell, the same every time."""
    luck = random.Random(place.key)
    metrics = {f"{split}/{name}": 100 * luck.random() for split in ("valid", "test") for name in MEASURES}
    errors = {name: luck.random() for name in metrics if name.startswith("test/")}
    return Outcome(
        status="done", step=200, metrics=metrics | {"train/loss": luck.random()}, seconds=10.0, tokens_per_second=1e4,
        parameters=123456, state_bytes=4096, flops_per_token=1e6, errors=errors,
    )  # fmt: skip


def note(ledger: Ledger, study: str, place: Place, code: dict[str, str], outcome: Outcome) -> None:
    """What the coordinator writes about a cell."""
    point = dict(place.point or {})
    told = {"key": place.key, "arm": place.arm.title, "seed": place.seed, "point": point, "counts": True, "code": code}
    attempt = ledger.begin(study, ledger.ask(study, {}), told)
    end = {name: value for name, value in vars(outcome).items() if name not in ("status", "message")}
    ledger.finish(attempt, "done", outcome.metrics["valid/normalised_accuracy"], **end, why="")


def typed(*words: str, folder: Path) -> dict[str, float]:
    """Seconds that a command takes, on the clock and of the processor."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([Path(sys.executable).parent / "hqlt", *words], cwd=folder, stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"seconds": round(wall, 1), "processor": round(after.ru_utime - before.ru_utime, 1)}


def main(seeds: int, folder: Path) -> None:
    (folder / "many.yaml").write_text(STUDY.format(arms=arms(), seeds=seeds))
    url = os.environ.pop(ENVIRONMENT, "")
    if not (folder / "runs").exists():
        began, store = time.perf_counter(), Store(folder / "runs", "many")
        fill(load(folder / "many.yaml"), store)
        if url:
            move(store, url)
        print(f"made in {time.perf_counter() - began:.0f} s", file=sys.stderr)
    os.environ |= {ENVIRONMENT: url} if url else {}
    told = {"first status": typed("status", "many.yaml", folder=folder)}  # keeps the plan, as `hqlt run` does
    told |= {verb: typed(verb, "many.yaml", folder=folder) for verb in ("status", "report")}
    (folder / "more").mkdir(exist_ok=True)
    more = (folder / "many.yaml").read_text().replace("arms:", "arms:\n  one_more: {model.width: 32}")
    (folder / "more/many.yaml").write_text(more)
    told["plan with one arm more"] = typed("plan", "more/many.yaml", folder=folder)
    told["status with one arm more"] = typed("status", "more/many.yaml", folder=folder)
    print(json.dumps({"cells": 1000 * seeds} | told))


if __name__ == "__main__":
    count = int(sys.argv[1]) if sys.argv[1:2] and sys.argv[1].isdigit() else 10
    if "--keep" in sys.argv:
        kept = Path(sys.argv[sys.argv.index("--keep") + 1])
        kept.mkdir(parents=True, exist_ok=True)
        main(count, kept)
    else:
        with tempfile.TemporaryDirectory() as name:
            main(count, Path(name))
