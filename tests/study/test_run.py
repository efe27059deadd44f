"""Each cell is trained once, whatever goes wrong around it."""

import subprocess
import sys
from pathlib import Path

import pytest

from hqlt_lab.errors import ConfigError, StoreError, TrainingError
from hqlt_lab.registry import include, temporarily
from hqlt_lab.report.frame import frame
from hqlt_lab.study.run import Choice, open_agenda, prepare, train
from hqlt_lab.study.store import Store

from .conftest import Lab, Nobody, Watcher

RESTLESS = Path(__file__).parents[1] / "train/restless.py"

ARMS = """
arms: {sum: {}, vector: {model.mixer: vector}}
seeds: 2
"""


def test_every_cell_is_trained_once_and_again_means_nothing_is_left(lab):
    experiment = lab.experiment(ARMS)
    watcher = lab.run(experiment)
    assert sorted(watcher.starts) == [("sum", 0), ("sum", 1), ("vector", 0), ("vector", 1)]
    assert lab.states(experiment) == {"done": 4}
    assert lab.run(experiment).starts == []


def test_arms_are_compared_as_early_as_possible(lab):
    watcher = lab.run(lab.experiment(ARMS, overrides=("launcher.workers=1",)))
    assert watcher.starts == [("sum", 0), ("vector", 0), ("sum", 1), ("vector", 1)]


def test_new_arms_and_seeds_run_only_what_is_new(lab):
    lab.run(lab.experiment(ARMS))
    watcher = lab.run(
        lab.experiment("arms: {sum: {}, vector: {model.mixer: vector}, scalar: {model.mixer: scalar}}\nseeds: 3")
    )
    assert sorted(watcher.starts) == [("scalar", 0), ("scalar", 1), ("scalar", 2), ("sum", 2), ("vector", 2)]


def test_a_renamed_arm_keeps_its_results(lab):
    lab.run(lab.experiment(ARMS))
    renamed = lab.experiment("arms: {plain: {}, vector: {model.mixer: vector}}\nseeds: 2")
    assert lab.run(renamed).starts == []
    assert {record.arm for record in lab.records(renamed)} == {"plain", "vector"}


def test_the_result_does_not_depend_on_the_number_of_workers(lab, tmp_path):
    experiment = lab.experiment(ARMS)
    lab.run(experiment)
    alone = type(lab)(tmp_path / "alone")
    alone.folder.mkdir()
    lab_alone = alone.experiment(ARMS, overrides=("launcher.workers=1",))
    alone.run(lab_alone)
    assert [r.metrics for r in alone.records(lab_alone)] == [r.metrics for r in lab.records(experiment)]


def test_the_ledger_knows_which_cells_repeat_and_which_were_not_asked(lab):
    with temporarily():
        include(RESTLESS)
        experiment = lab.experiment("arms: {sum: {}, bad: {model.mixer: restless}}\nseeds: 1")
        lab.run(experiment)
        unasked = lab.experiment("arms: {sum: {}}\nseeds: 1", "unasked", ("trainer.canary=false",))
        lab.run(unasked)
        records = [*lab.records(experiment), *lab.records(unasked)]
    assert [(record.arm, record.state, record.repeatable) for record in records] == [
        ("sum", "done", True),
        ("bad", "done", False),
        ("sum", "done", None),
    ]
    assert frame(records).repeatable.tolist() == [True, False, None]


def test_only_and_limit_choose_cells(lab):
    experiment = lab.experiment(ARMS)
    assert lab.run(experiment, only=["arm=vector"], limit=1).starts == [("vector", 0)]
    assert sorted(lab.run(experiment, only=["seed=0"]).starts) == [("sum", 0)]
    assert lab.states(experiment) == {"done": 2, "waiting": 2}
    with pytest.raises(ConfigError, match=r"there is no such value\. Did you mean 'vector'"):
        lab.run(experiment, only=["arm=vektor"])


def test_again_supersedes_what_was_there(lab):
    experiment = lab.experiment(ARMS)
    lab.run(experiment)
    before = {record.key: record.folder for record in lab.records(experiment)}
    watcher = lab.run(experiment, again=True, only=["arm=sum,seed=1"])
    assert watcher.starts == [("sum", 1)]
    after = {record.key: record.folder for record in lab.records(experiment)}
    assert sum(before[key] != after[key] for key in before) == 1
    assert lab.states(experiment) == {"done": 4}
    assert all(record.attempts == 1 for record in lab.records(experiment))
    (old,) = open_agenda(experiment, Store(lab.runs, "tiny")).superseded()
    assert (old.arm, old.seed, old.state, old.attempts) == ("sum", 1, "superseded", 1)


def test_a_second_coordinator_is_refused_with_a_sentence(lab):
    experiment = lab.experiment(ARMS)
    with (
        Store(lab.runs, "tiny").owned(),
        pytest.raises(
            StoreError, match=r"another program is at work on this study \(process \d+, since .*\). Wait for it"
        ),
    ):
        lab.run(experiment)


def test_two_studies_in_one_folder_do_not_meet(lab):
    first, second = lab.experiment(ARMS, "first"), lab.experiment(ARMS, "second")
    with Store(lab.runs, "first").owned():
        lab.run(second)
    assert lab.states(second) == {"done": 4}
    assert lab.states(first) == {"waiting": 4}


def test_sixty_cells_and_four_workers_are_sixty_results(lab):
    text = "cross: {model.mixer: [sum, scalar, vector], train.lr: [1e-2, 1e-3]}\nseeds: 10"
    experiment = lab.experiment(text, overrides=("launcher.workers=4", "train.steps=2"))
    watcher = lab.run(experiment)
    assert watcher.workers == 4
    assert len(watcher.starts) == len(set(watcher.starts)) == 60
    assert lab.states(experiment) == {"done": 60}
    assert len({record.folder for record in lab.records(experiment)}) == 60


def test_a_script_that_workers_cannot_import_is_told_and_costs_no_cell_an_attempt(lab):
    experiment = lab.experiment("seeds: 1")
    script = f"import hqlt_lab as lab; lab.run({str(lab.folder / 'tiny.yaml')!r}, runs={str(lab.runs)!r})"
    (lab.folder / "script.py").write_text(script)
    told = subprocess.run([sys.executable, lab.folder / "script.py"], capture_output=True, text=True)
    assert "put what it does under `if __name__ == '__main__':`" in told.stderr
    assert lab.states(experiment) == {"waiting": 1}


@pytest.mark.slow
def test_a_damaged_journal_is_moved_away_and_nothing_is_trained_twice(lab):
    experiment = lab.experiment(ARMS)
    lab.run(experiment)
    lab.run(experiment, again=True, only=["arm=sum,seed=1"])
    before, journal = lab.records(experiment), Store(lab.runs, "tiny").journal
    curves = {record.key: (record.folder / "metrics.jsonl").read_bytes() for record in before}
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:5], b"\0garbage\xff\n", *lines[5:]]))
    with pytest.raises(StoreError, match=r"a line of it is damaged .* Move the file away and run the study again"):
        lab.run(experiment)
    journal.rename(journal.with_suffix(".damaged"))
    lab.run(experiment)
    after = lab.records(experiment)
    told = [[(r.key, r.state, r.folder, r.metrics, r.seconds, r.code) for r in some] for some in (before, after)]
    assert told[0] == told[1] and {record.state for record in after} == {"done"}
    assert curves == {record.key: (record.folder / "metrics.jsonl").read_bytes() for record in after}


@pytest.mark.slow
def test_a_full_disk_stops_a_study_and_with_room_it_goes_on(small_disk, faulty):
    lab, arms = Lab(small_disk.folder), "arms: {sum: {}, slow: {model.mixer: {name: faulty, seconds: 0.1}}}\nseeds: 2"
    experiment, watcher = lab.experiment(arms, overrides=("launcher.retries=0",)), Watcher()
    watcher.settled = lambda record: small_disk.ballast.exists() or small_disk.fill()
    store = Store(lab.runs, "tiny")
    told = pytest.raises((StoreError, TrainingError), match=f"the disk {small_disk.folder} is full")
    with told, store.owned():
        train(prepare(experiment, store, Choice()), None, watcher, Nobody())
    small_disk.free()
    assert not list(lab.runs.rglob("*.writing"))
    assert set(lab.states(experiment)) <= {"done", "waiting"} and "waiting" in lab.states(experiment)
    lab.run(experiment)
    assert lab.states(experiment) == {"done": 4}
