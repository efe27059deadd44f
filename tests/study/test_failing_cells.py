"""A cell that raises, dies, hangs or diverges is reported and does not affect the other cells."""

import json

import pytest

from hqlt_lab.report.study_report import Report
from hqlt_lab.study.ledger.study_store import StudyStore


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
        ("die", "failed", 2, "The worker process was killed, probably because the machine ran out of memory."),
        ("nan", "diverged", 1, "the loss is nan"),
    ],
)
def test_failing_cell_does_not_stop_the_others(lab, faulty, how, state, attempts, why):
    arms = f"arms: {{sum: {{}}, bad: {{model.mixer: {{name: faulty, how: {how}}}}}}}\nseeds: 2"
    experiment = lab.experiment(arms, overrides=("launcher.retries=1",))
    lab.run(experiment)
    good, bad = ([r for r in lab.records(experiment) if r.arm == arm] for arm in ("sum", "bad"))
    assert [record.state for record in good] == ["done", "done"]
    assert [(record.state, record.attempts) for record in bad] == [(state, attempts)] * 2
    assert all(why in record.why for record in bad)
    rows = Report.from_records(experiment, lab.records(experiment)).rows
    assert [(row.title, row.unfinished_counts[state], row.has_ended_without_result) for row in rows] == [
        ("sum", 0, False),
        ("bad", 2, True),
    ]
    assert lab.run(experiment).starts == []


def test_traceback_is_in_the_log_of_the_cell(lab, faulty):
    experiment = lab.experiment("arms: {bad: {model.mixer: {name: faulty, how: raise}}}\nseeds: 1")
    lab.run(experiment)
    (record,) = lab.records(experiment)
    log = (record.folder / "log.txt").read_text()
    assert log.count("--- attempt") == 2
    assert "Traceback" in log and "the matrix is not in the mood" in log


@pytest.mark.parametrize(("how", "attempts"), [("raise", 2), ("memory", 3)])
def test_same_error_at_the_same_step_is_retried_once_and_a_lack_of_memory_as_configured(lab, faulty, how, attempts):
    experiment = lab.experiment(f"arms: {{bad: {{model.mixer: {{name: faulty, how: {how}}}}}}}\nseeds: 1")
    lab.run(experiment)
    (record,) = lab.records(experiment)
    assert (record.state, record.attempts) == ("failed", attempts)


def test_hanging_cell_is_killed_and_resumes_from_its_checkpoint(lab, faulty, tmp_path):
    arms = f"arms: {{slow: {{model.mixer: {{name: faulty, how: hang, step: 6, mark: {tmp_path}/hung}}}}}}\nseeds: 1"
    experiment = lab.experiment(arms, overrides=("launcher.time_limit=6",))
    callback = lab.run(experiment)
    assert [record.why for record in callback.ends] == ["The cell exceeded the time limit of 6 s.", ""]
    (record,) = lab.records(experiment)
    assert (record.state, record.attempts) == ("done", 2)
    lines = [json.loads(line) for line in (record.folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "train/loss" in line["metrics"]] == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_cell_that_always_hangs_fails_and_the_others_finish(lab, faulty):
    experiment = lab.experiment(
        "arms: {sum: {}, stuck: {model.mixer: {name: faulty, how: hang}}}\nseeds: 1",
        overrides=("launcher.time_limit=10", "launcher.retries=0"),
    )
    lab.run(experiment)
    outcomes = {record.arm: (record.state, record.why) for record in lab.records(experiment)}
    assert outcomes == {"sum": ("done", ""), "stuck": ("failed", "The cell exceeded the time limit of 10 s.")}
    assert lab.run(experiment).starts == []


def test_worker_that_dies_during_a_run_loses_nothing(lab, faulty, tmp_path):
    arm = "arms: {{a: {{model.mixer: {{name: faulty, how: {how}, step: 5, mark: {mark}}}}}}}\nseeds: 1"
    disturbed = lab.experiment(arm.format(how="die", mark=tmp_path / "died"), "disturbed")
    lab.run(disturbed)
    undisturbed = lab.experiment(arm.format(how="nothing", mark=tmp_path / "died"), "undisturbed")
    lab.run(undisturbed)
    (resumed,), (uninterrupted,) = lab.records(disturbed), lab.records(undisturbed)
    assert (resumed.state, resumed.attempts) == ("done", 2)
    assert resumed.metrics == uninterrupted.metrics


def test_error_that_would_repeat_is_not_retried(lab):
    experiment = lab.experiment("arms: {a: {}}\nseeds: 1", overrides=("train.batch_size=5", "train.accumulate=5"))
    (key,) = (record.key for record in lab.records(experiment))
    folder = StudyStore(lab.runs, "tiny").cell_folder(key)
    folder.mkdir(parents=True)
    other_cell = {
        "task": {},
        "model": {},
        "train": {},
        "trainer": {"precision": "32"},
        "measure": {"select": "", "direction": ""},
    }
    (folder / "cell.json").write_text(json.dumps(other_cell | {"seed": 7}))
    lab.run(experiment)
    (record,) = lab.records(experiment)
    assert (record.state, record.attempts) == ("failed", 1)
    assert "the folder contains the run of another cell" in record.why
