"""A cell that raises, dies, hangs or learns nonsense is told, and no other one is disturbed."""

import json

import pytest

from hqlt_lab.report.report import Report
from hqlt_lab.study.store import Store


@pytest.mark.parametrize(
    ("how", "state", "attempts", "why"),
    [
        ("raise", "failed", 2, "RuntimeError: the matrix is not in the mood"),
        ("memory", "failed", 2, "OutOfMemoryError: no more of it"),
        pytest.param(
            "hoard",
            "failed",
            2,
            "can't allocate memory: you tried to allocate 17179869184 bytes",
            marks=pytest.mark.slow,
        ),
        ("die", "failed", 2, "Its process was killed; if nobody did it, the machine ran out of memory."),
        ("nan", "diverged", 1, "the loss is nan"),
    ],
)
def test_a_bad_cell_does_not_stop_the_others(lab, faulty, how, state, attempts, why):
    arms = f"arms: {{sum: {{}}, bad: {{model.mixer: {{name: faulty, how: {how}}}}}}}\nseeds: 2"
    experiment = lab.experiment(arms, overrides=("launcher.retries=1",))
    lab.run(experiment)
    good, bad = ([r for r in lab.records(experiment) if r.arm == arm] for arm in ("sum", "bad"))
    assert [record.state for record in good] == ["done", "done"]
    assert [(record.state, record.attempts) for record in bad] == [(state, attempts)] * 2
    assert all(why in record.why for record in bad)
    rows = Report.make(experiment, lab.records(experiment)).rows
    assert [(row.title, row.unfinished[state], row.in_vain) for row in rows] == [("sum", 0, False), ("bad", 2, True)]
    assert lab.run(experiment).starts == []


def test_the_traceback_is_in_the_log_of_the_cell(lab, faulty):
    experiment = lab.experiment("arms: {bad: {model.mixer: {name: faulty, how: raise}}}\nseeds: 1")
    lab.run(experiment)
    (record,) = lab.records(experiment)
    log = (record.folder / "log.txt").read_text()
    assert log.count("--- attempt") == 3
    assert "Traceback" in log and "the matrix is not in the mood" in log


def test_a_cell_that_hangs_is_ended_and_goes_on_from_its_checkpoint(lab, faulty, tmp_path):
    arms = f"arms: {{slow: {{model.mixer: {{name: faulty, how: hang, step: 6, mark: {tmp_path}/hung}}}}}}\nseeds: 1"
    experiment = lab.experiment(arms, overrides=("launcher.time_limit=6",))
    watcher = lab.run(experiment)
    assert [record.why for record in watcher.ends] == ["The time limit of 6 s passed.", ""]
    (record,) = lab.records(experiment)
    assert (record.state, record.attempts) == ("done", 2)
    lines = [json.loads(line) for line in (record.folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "train/loss" in line["metrics"]] == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_a_cell_that_always_hangs_is_told_and_the_others_are_done(lab, faulty):
    experiment = lab.experiment(
        "arms: {sum: {}, stuck: {model.mixer: {name: faulty, how: hang}}}\nseeds: 1",
        overrides=("launcher.time_limit=10", "launcher.retries=0"),
    )
    lab.run(experiment)
    told = {record.arm: (record.state, record.why) for record in lab.records(experiment)}
    assert told == {"sum": ("done", ""), "stuck": ("failed", "The time limit of 10 s passed.")}
    assert lab.run(experiment).starts == []


def test_a_worker_that_dies_in_mid_run_loses_nothing(lab, faulty, tmp_path):
    arm = "arms: {{a: {{model.mixer: {{name: faulty, how: {how}, step: 5, mark: {mark}}}}}}}\nseeds: 1"
    disturbed = lab.experiment(arm.format(how="die", mark=tmp_path / "died"), "disturbed")
    lab.run(disturbed)
    calm = lab.experiment(arm.format(how="nothing", mark=tmp_path / "died"), "calm")
    lab.run(calm)
    (first,), (second,) = lab.records(disturbed), lab.records(calm)
    assert (first.state, first.attempts) == ("done", 2)
    assert first.metrics == second.metrics


def test_a_complaint_of_the_lab_is_not_repeated(lab):
    experiment = lab.experiment("arms: {a: {}}\nseeds: 1", overrides=("train.batch_size=5", "train.accumulate=5"))
    (key,) = (record.key for record in lab.records(experiment))
    folder = Store(lab.runs, "tiny").cell(key)
    folder.mkdir(parents=True)
    other = {
        "task": {},
        "model": {},
        "train": {},
        "trainer": {"precision": "32"},
        "measure": {"select": "", "direction": ""},
    }
    (folder / "cell.json").write_text(json.dumps(other | {"seed": 7}))
    lab.run(experiment)
    (record,) = lab.records(experiment)
    assert (record.state, record.attempts) == ("failed", 1)
    assert "this folder holds the run of another cell" in record.why
