"""Running a study trains every cell exactly once; running it again resumes it."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hqlt_lab.errors import StoreError, TrainingError
from hqlt_lab.registry import load_components, temporary_components
from hqlt_lab.report.render.cells_dataframe import build_frame
from hqlt_lab.study.ledger.cell_record import CellRecord
from hqlt_lab.study.ledger.study_store import StudyStore
from hqlt_lab.study.run_study import CellSelection, open_plan, prepare_study, train_study
from tests.issues import raises_issue

from .conftest import NullSink, RecordingCallback, StudyRunner

NONDETERMINISTIC = Path(__file__).parents[1] / "train/nondeterministic_mixers.py"

ARMS = """
arms: {sum: {}, vector: {model.mixer: vector}}
seeds: 2
"""


def test_every_cell_is_trained_once_and_a_second_run_trains_nothing(lab):
    experiment = lab.experiment(ARMS)
    callback = lab.run(experiment)
    assert sorted(callback.starts) == [("sum", 0), ("sum", 1), ("vector", 0), ("vector", 1)]
    assert lab.states(experiment) == {"done": 4}
    assert lab.run(experiment).starts == []


def test_arms_are_compared_as_early_as_possible(lab):
    callback = lab.run(lab.experiment(ARMS, overrides=("launcher.workers=1",)))
    assert callback.starts == [("sum", 0), ("vector", 0), ("sum", 1), ("vector", 1)]


def test_adding_arms_and_seeds_trains_only_the_new_cells(lab):
    lab.run(lab.experiment(ARMS))
    callback = lab.run(
        lab.experiment("arms: {sum: {}, vector: {model.mixer: vector}, scalar: {model.mixer: scalar}}\nseeds: 3")
    )
    assert sorted(callback.starts) == [("scalar", 0), ("scalar", 1), ("scalar", 2), ("sum", 2), ("vector", 2)]


def test_renamed_arm_keeps_its_results(lab):
    lab.run(lab.experiment(ARMS))
    renamed = lab.experiment("arms: {plain: {}, vector: {model.mixer: vector}}\nseeds: 2")
    assert lab.run(renamed).starts == []
    assert {record.arm for record in lab.records(renamed)} == {"plain", "vector"}


def test_results_do_not_depend_on_the_number_of_workers(lab, tmp_path):
    experiment = lab.experiment(ARMS)
    lab.run(experiment)
    single = StudyRunner(tmp_path / "single")
    single.folder.mkdir()
    single_worker = single.experiment(ARMS, overrides=("launcher.workers=1",))
    single.run(single_worker)
    assert [r.metrics for r in single.records(single_worker)] == [r.metrics for r in lab.records(experiment)]


def test_ledger_records_which_cells_are_deterministic_and_which_were_not_checked(lab):
    with temporary_components():
        load_components(NONDETERMINISTIC)
        experiment = lab.experiment("arms: {sum: {}, bad: {model.mixer: nondeterministic}}\nseeds: 1")
        lab.run(experiment)
        unchecked = lab.experiment("arms: {sum: {}}\nseeds: 1", "unchecked", ("trainer.check_determinism=false",))
        lab.run(unchecked)
        records = [*lab.records(experiment), *lab.records(unchecked)]
    assert [(record.arm, record.state, record.repeatable) for record in records] == [
        ("sum", "done", True),
        ("bad", "done", False),
        ("sum", "done", None),
    ]
    assert build_frame(records).repeatable.tolist() == [True, False, None]


def test_only_and_limit_select_cells(lab):
    experiment = lab.experiment(ARMS)
    assert lab.run(experiment, only=["arm=vector"], limit=1).starts == [("vector", 0)]
    assert sorted(lab.run(experiment, only=["seed=0"]).starts) == [("sum", 0)]
    assert lab.states(experiment) == {"done": 2, "waiting": 2}
    with raises_issue("--only", "unknown_label_value"):
        lab.run(experiment, only=["arm=vektor"])


def test_again_supersedes_earlier_attempts(lab):
    experiment = lab.experiment(ARMS)
    lab.run(experiment)
    before = {record.key: record.folder for record in lab.records(experiment)}
    callback = lab.run(experiment, again=True, only=["arm=sum,seed=1"])
    assert callback.starts == [("sum", 1)]
    after = {record.key: record.folder for record in lab.records(experiment)}
    assert sum(before[key] != after[key] for key in before) == 1
    assert lab.states(experiment) == {"done": 4}
    assert all(record.attempts == 1 for record in lab.records(experiment))
    (old,) = open_plan(experiment, StudyStore(lab.runs, "tiny")).list_superseded()
    assert (old.arm, old.seed, old.state, old.attempts) == ("sum", 1, "superseded", 1)


def test_second_coordinator_is_rejected(lab):
    experiment = lab.experiment(ARMS)
    with (
        StudyStore(lab.runs, "tiny").session(),
        pytest.raises(
            StoreError, match=r"another process is running this study \(process \d+ on .*, since .*\). Wait for it"
        ),
    ):
        lab.run(experiment)


def test_two_studies_in_one_folder_are_independent(lab):
    first, second = lab.experiment(ARMS, "first"), lab.experiment(ARMS, "second")
    with StudyStore(lab.runs, "first").session():
        lab.run(second)
    assert lab.states(second) == {"done": 4}
    assert lab.states(first) == {"waiting": 4}


def test_sixty_cells_on_four_workers_give_sixty_results(lab):
    text = "cross: {model.mixer: [sum, scalar, vector], train.lr: [1e-2, 1e-3]}\nseeds: 10"
    experiment = lab.experiment(text, overrides=("launcher.workers=4", "train.steps=2"))
    callback = lab.run(experiment)
    assert callback.workers == 4
    assert len(callback.starts) == len(set(callback.starts)) == 60
    assert lab.states(experiment) == {"done": 60}
    assert len({record.folder for record in lab.records(experiment)}) == 60


def test_script_without_main_guard_is_reported_and_costs_no_attempt(lab):
    experiment = lab.experiment("seeds: 1")
    script = f"import hqlt_lab as lab; lab.run({str(lab.folder / 'tiny.yaml')!r}, runs={str(lab.runs)!r})"
    (lab.folder / "script.py").write_text(script)
    result = subprocess.run([sys.executable, lab.folder / "script.py"], capture_output=True, text=True)
    assert "put the code under `if __name__ == '__main__':`" in result.stderr
    assert lab.states(experiment) == {"waiting": 1}


@pytest.mark.slow
def test_after_moving_a_corrupt_journal_away_nothing_is_trained_twice(lab):
    experiment = lab.experiment(ARMS)
    lab.run(experiment)
    lab.run(experiment, again=True, only=["arm=sum,seed=1"])
    before, journal = lab.records(experiment), StudyStore(lab.runs, "tiny").journal_file
    curves = {record.key: (record.folder / "metrics.jsonl").read_bytes() for record in before}
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:5], b"\0garbage\xff\n", *lines[5:]]))
    with pytest.raises(StoreError, match=r"a line of the file is damaged .* Move the file away and run the study"):
        lab.run(experiment)
    journal.rename(journal.with_suffix(".damaged"))
    lab.run(experiment)
    after = lab.records(experiment)
    summarize = lambda records: [(r.key, r.state, r.folder, r.metrics, r.seconds, r.code) for r in records]  # noqa: E731
    assert summarize(before) == summarize(after) and {record.state for record in after} == {"done"}
    assert curves == {record.key: (record.folder / "metrics.jsonl").read_bytes() for record in after}


@pytest.mark.slow
def test_full_disk_stops_a_study_which_resumes_when_there_is_room(small_disk, faulty):
    lab = StudyRunner(small_disk.folder)
    arms = "arms: {sum: {}, slow: {model.mixer: {name: faulty, seconds: 0.1}}}\nseeds: 2"
    experiment, callback = lab.experiment(arms, overrides=("launcher.retries=0",)), RecordingCallback()
    callback.on_cell_end = lambda record: small_disk.filler.exists() or small_disk.fill()
    store = StudyStore(lab.runs, "tiny")
    raises_disk_full = pytest.raises((StoreError, TrainingError), match=f"the disk {small_disk.folder} is full")
    with raises_disk_full, store.session():
        train_study(prepare_study(experiment, store, CellSelection()), None, callback, NullSink())
    small_disk.free()
    assert not list(lab.runs.rglob("*.writing"))
    assert set(lab.states(experiment)) <= {"done", "waiting"} and "waiting" in lab.states(experiment)
    lab.run(experiment)
    assert lab.states(experiment) == {"done": 4}


class DamagingCallback(RecordingCallback):
    """Callback that calls a function with the first cell that is done."""

    def __init__(self, damage: Callable[[CellRecord], object]) -> None:
        super().__init__()
        self.damage = damage

    def on_cell_end(self, record: CellRecord) -> None:
        super().on_cell_end(record)
        if len(self.ends) == 1:
            self.damage(record)


def test_a_journal_that_is_damaged_while_the_study_runs_is_an_error_and_no_result_is_lost(lab):
    experiment = lab.experiment("seeds: 3", overrides=("launcher.workers=1",))
    journal = StudyStore(lab.runs, experiment.name).journal_file
    callback = DamagingCallback(lambda record: journal.write_bytes(b"#" + journal.read_bytes()[1:]))
    with pytest.raises(StoreError, match=re.escape(str(journal))):
        lab.run(experiment, callback=callback)
    journal.rename(journal.with_name("damaged"))
    trained = lab.run(experiment)
    assert lab.states(experiment) == {"done": 3}
    assert callback.ends[0].metrics == next(end for end in trained.ends if end.seed == callback.ends[0].seed).metrics


def test_a_folder_that_is_deleted_after_its_cell_was_trained_is_reported(lab, caplog):
    experiment = lab.experiment("seeds: 2", overrides=("launcher.workers=1",))
    callback = DamagingCallback(lambda record: shutil.rmtree(record.folder))
    lab.run(experiment, callback=callback)
    [warning] = [entry.getMessage() for entry in caplog.records if entry.levelname == "WARNING"]
    assert str(callback.ends[0].folder) in warning and str(callback.ends[1].folder) not in warning
