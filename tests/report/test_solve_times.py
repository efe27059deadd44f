"""Steps to solve: the first validation at which a seed reaches the threshold, and their survival curves."""

import json

import pytest

from hqlt_lab.report.arm_rows import build_rows
from hqlt_lab.report.study_report import Report
from hqlt_lab.stats.survival_curve import TimeToGoal

ARM = "arms: {delta: {}}\n"
SOLVED = "seeds: 5\nmeasure: {solved: 90}\n"


@pytest.fixture
def solve(make_experiment, make_record, make_folder):
    """Return a function that builds a report from the validation curve of each seed, one value per 10 steps."""

    def make(curves, extra=SOLVED, arms=ARM, states=(), test=5.0):
        records = []
        for arm, seeds in curves.items():
            for seed, curve in enumerate(seeds):
                folder = make_folder(f"{arm}{seed}", curve)
                state = states[seed] if seed < len(states) else "done"
                result = test if state == "done" else None
                records.append(make_record(arm, seed, result, folder=folder, state=state))
        return Report.from_records(make_experiment(extra, arms=arms), records)

    return make


def test_a_seed_solves_the_task_at_the_first_validation_that_reaches_the_threshold(solve):
    curves = [[1.0, 90.0, 5.0], [1.0, 89.9, 95.0], [1.0, 2.0, 3.0], [99.0]]
    times = solve({"delta": curves}).rows[0].solve_times
    assert times.by_seed == {
        0: TimeToGoal(20, True), 1: TimeToGoal(30, True), 2: TimeToGoal(30, False), 3: TimeToGoal(10, True),
    }  # fmt: skip
    assert [(step.time, step.survival) for step in times.curve] == [
        (10, 0.75),
        (20, pytest.approx(0.5)),
        (30, pytest.approx(0.25)),
    ]
    assert (times.median, times.interval.low, times.interval.high) == (20, 10, None)
    assert times.interval.confidence == 0.875 and times.valid_every == 100


def test_a_loss_solves_the_task_at_or_below_the_threshold(make_experiment, make_record, make_folder):
    measure = "seeds: 1\nmeasure: {select: valid/loss, direction: minimize, report: [test/loss], solved: 0.5}\n"
    folder = make_folder("a", [])
    lines = [{"step": step, "metrics": {"valid/loss": loss}} for step, loss in ((10, 0.6), (20, 0.5), (30, 0.1))]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    record = make_record("delta", 0, 1.0, metrics={"test/loss": 0.1, "valid/loss": 0.1}, folder=folder)
    (row,) = build_rows(make_experiment(measure, arms=ARM), [record])
    assert row.solve_times.by_seed == {0: TimeToGoal(20, True)}


@pytest.mark.parametrize("state", ["diverged", "failed", "pruned"])
def test_lost_seeds_count_as_not_solved_until_the_planned_end(solve, state):
    states = ["done", state, state, state]
    times = solve({"delta": [[95.0], [1.0], [], [95.0]]}, states=states).rows[0].solve_times
    assert times.by_seed[1] == times.by_seed[2] == TimeToGoal(300, False)
    assert times.by_seed[3] == TimeToGoal(10, True)  # solved before it was lost


def test_running_seeds_are_censored_at_their_last_validation(solve):
    states = ["done", "running", "waiting"]
    times = solve({"delta": [[1.0, 2.0, 95.0], [1.0, 2.0], []]}, states=states).rows[0].solve_times
    assert times.by_seed == {0: TimeToGoal(30, True), 1: TimeToGoal(20, False)}
    assert times.median == 30 and times.interval is None


def test_without_threshold_or_validation_curves_nothing_is_measured(solve, make_experiment, make_record):
    assert solve({"delta": [[95.0]]}, "seeds: 5\n").rows[0].solve_times is None
    report = Report.from_records(make_experiment(SOLVED, arms=ARM), [make_record("delta", 0, 95.0)])
    assert report.rows[0].solve_times is None and report.build_training_tables() == {}
    other = "seeds: 5\nmeasure: {solved: 90, report: [test/accuracy]}\n"  # valid/accuracy is not in the curves
    assert solve({"again": [[95.0]]}, other, "arms: {again: {}}\n").rows[0].solve_times is None


TWO_ARMS = "arms: {delta: {train.valid_every: 10}, linear: {train.valid_every: 20}}\n"


@pytest.fixture
def report(solve):
    fast = [[1.0, 95.0], [95.0], [1.0, 1.0, 95.0]]
    slow = [[1.0] * 29 + [95.0], [1.0] * 30, [1.0] * 30]
    return solve({"delta": fast, "linear": slow}, arms=TWO_ARMS)


def test_every_format_has_the_steps_to_solve(report):
    table = report.build_training_tables()["Steps to solve"]
    assert table.rows == [
        ["delta", "3 of 3", "10", "20 [10, 30]", "75.0 %", "30"],
        ["linear", "1 of 3", "300", "> 300 [300, > 300]", "75.0 %", "300"],
    ]
    assert "Training is validated every 10 to 20 steps" in table.notes[0]
    markdown, latex = report.to_markdown(), report.to_latex()
    assert "## Steps to solve" in markdown and "| delta | 3 of 3 | 10 | 20 [10, 30] | 75.0 % | 30 |" in markdown
    assert "\\caption{Steps to solve}" in latex and "20 {[}10, 30{]}" in latex
    html = report.to_html()
    assert 'id="steps-to-solve"' in html and 'id="figure-steps_to_solve"' in html
    delta, linear = json.loads(report.to_json())["rows"]
    assert delta["steps_to_solve"]["median"] == 20 and linear["steps_to_solve"]["median"] is None
    assert delta["steps_to_solve"]["interval"] == {"low": 10, "high": 30, "confidence": 0.75}
    assert delta["steps_to_solve"]["by_seed"]["1"] == {"time": 10, "is_reached": True}


def test_the_figure_has_a_step_curve_per_arm_with_ticks_at_censored_seeds(report):
    (figure,) = [each for each in report.figure_set.figures if each.name == "steps_to_solve"]
    (panel,) = figure.figure.axes
    lines = {line.get_label(): line for line in panel.lines}
    assert list(lines["delta"].get_xdata()) == [0, 10, 20, 30, 30]
    assert list(lines["delta"].get_ydata()) == pytest.approx([1, 2 / 3, 1 / 3, 0, 0])
    assert list(lines["linear"].get_ydata()) == pytest.approx([1, 2 / 3, 2 / 3])
    (ticks,) = [line for line in panel.lines if line.get_marker() == "|" and len(line.get_xdata())]
    assert list(ticks.get_xdata()) == [300] and list(ticks.get_ydata()) == pytest.approx([2 / 3])
    assert "delta solves the task first: half of the seeds within 20 steps." in figure.caption
    assert "More than half of the seeds do not solve it: linear." in figure.caption


def test_there_is_no_figure_if_no_seed_solves_the_task(solve):
    report = solve({"delta": [[1.0], [2.0]]})
    assert "steps_to_solve" not in report.matplotlib_figures()
    assert report.build_training_tables()["Steps to solve"].rows == [["delta", "0 of 2", "–", "> 10", "–", "10"]]
