"""Every doubt is told when there is reason, and only then."""

import json

import pytest

from hqlt_lab.report.curves import curve, end_of_curve, late_fall
from hqlt_lab.report.rows import rows_of
from hqlt_lab.report.warnings import warnings_of

GRID = "tune: {train.lr: [1e-3, 1e-2, 1e-1]}\nseeds: 1\n"


def told(experiment, records):
    return warnings_of(experiment, rows_of(experiment, records), records)


def tuned(cell, arm, best, path="train.lr", values=(1e-3, 1e-2, 1e-1), **more):
    return [cell(arm, 0, 90.0 if value == best else 10.0, point={path: value}, **more) for value in values]


def every_arm(cell, best):
    return [record for arm in ("delta", "linear", "retention") for record in tuned(cell, arm, best)]


def test_a_sound_study_has_no_warnings(asked, cell):
    assert told(asked(GRID), every_arm(cell, best=1e-2)) == []


@pytest.mark.parametrize("best, shown", [(1e-3, "0.001"), (1e-1, "0.1")])
def test_the_edge_of_a_grid_is_named_with_its_arm(asked, cell, best, shown):
    records = tuned(cell, "delta", best) + every_arm(cell, 1e-2)[3:]
    assert told(asked(GRID), records) == [
        f"delta: the chosen train.lr {shown} lies on the edge of its grid [0.001, 0.01, 0.1]; "
        "a better value may lie beyond."
    ]


@pytest.mark.parametrize(
    "path, values",
    [("model.mixer", ("sum", "vector")), ("model.output_gate", (False, True)), ("train.clip", (1.0, None))],
)
def test_words_have_no_edge(asked, cell, path, values):
    experiment = asked(f"tune: {{{path}: {json.dumps(values)}}}\nseeds: 1\n", arms="")
    assert told(experiment, tuned(cell, "base", values[0], path, values)) == []


def test_nothing_chosen_is_no_edge(asked, cell):
    records = [cell("base", 0, state="diverged", point={"train.lr": value}) for value in (1e-3, 1e-2, 1e-1)]
    assert told(asked(GRID, arms=""), records) == ["3 cells diverged."]


@pytest.mark.parametrize(
    "log, value, edge",
    [
        ("true", 1.3e-4, True),
        ("true", 2e-4, False),
        ("true", 5e-2, False),
        ("true", 8e-2, True),
        ("false", 2e-3, True),
        ("false", 2e-2, False),
        ("false", 9.6e-2, True),
    ],
)
def test_a_range_is_left_by_twentieths(asked, cell, log, value, edge):
    experiment = asked(f"tune: {{train.lr: {{low: 1e-4, high: 1e-1, log: {log}}}}}\nseeds: 1\n", arms="")
    point = {"train.lr": value}
    lines = told(experiment, [cell("base", 0, 90.0, point=point, counts=False), cell("base", 1, 90.0, point=point)])
    assert ["lies on the edge of its range 0.0001 to 0.1;" in line for line in lines] == [True] * edge


def test_unequal_budgets_are_told_cell_by_cell(asked, cell):
    records = every_arm(cell, best=1e-2)[:-1]
    assert told(asked(GRID), records) == [
        "The arms were tuned with unequal budgets; finished tuning cells: delta 3, linear 3, retention 2."
    ]


def test_arms_without_tuning_have_no_budget(asked, cell):
    assert told(asked("seeds: 2\n"), [cell("delta", 0, 1.0), cell("delta", 1, 1.0), cell("linear", 0, 1.0)]) == []


def falling(rate):
    return [1.0] * 9 + [1.0 - rate]


def test_a_loss_that_still_falls_is_told_by_the_median_seed(asked, cell, logged):
    rates = [0.0, 0.2, 0.3]
    records = [cell("delta", seed, 1.0, folder=logged(str(seed), falling(rate))) for seed, rate in enumerate(rates)]
    assert told(asked("seeds: 3\n"), records) == [
        "delta: the training loss was still falling, by 20 % over the last tenth of the steps; "
        "with more steps the arm may do better."
    ]


def test_a_loss_that_has_settled_is_not_told(asked, cell, logged):
    rates = [0.04, 0.04, 0.5]
    records = [cell("delta", seed, 1.0, folder=logged(str(seed), falling(rate))) for seed, rate in enumerate(rates)]
    assert told(asked("seeds: 3\n"), records) == []


def test_an_arm_that_solves_the_task_may_go_on_falling(asked, cell, logged):
    records = [cell("delta", 0, 100.0, folder=logged("a", falling(0.5)))]
    assert told(asked("seeds: 1\nmeasure: {solved: 99.0}\n"), records) == []
    assert len(told(asked("seeds: 1\nmeasure: {solved: 101.0}\n"), records)) == 1


def test_cells_without_curves_are_not_judged(asked, cell, tmp_path):
    assert told(asked("seeds: 1\n"), [cell("delta", 0, 90.0, folder=tmp_path / "nowhere")]) == []


def test_a_torn_line_is_skipped_and_the_first_value_of_a_step_stays(logged):
    folder = logged("torn", [3.0, 2.0])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 20, "time": 1.0, "metrics": {"train/loss": 9.0}}\n')
        file.write('{"step": 30, "time": 1.0, "metrics": {"valid/accuracy": 50.0}}\n')
        file.write('{"step": 30, "time": 1.0, "metrics": {"train/loss": 1.0}}\n')
        file.write('{"step": 40, "time": 1.0, "metrics": {"train/loss": NaN}}\n[1]\n')
        file.write('{"step": 50, "time": 1.0, "metr')
    assert curve(folder, "train/loss") == {10: 3.0, 20: 2.0, 30: 1.0}


def test_the_last_tenth_is_compared_with_the_tenth_before():
    assert late_fall({step: 4.0 if step <= 80 else 2.0 if step <= 90 else 1.0 for step in range(1, 101)}) == 0.5
    assert late_fall({step: float(step) for step in range(1, 101)}) < 0
    assert late_fall({}) is None and late_fall({100: 1.0}) is None


def test_lengths_that_were_never_trained_are_told_once(asked, cell):
    experiment = asked("cross: {'task.test_length': [[3, 20], [20, 40]]}\nseeds: 1\n")
    assert told(experiment, []) == ["The test has lengths that were never trained: up to 40, trained up to 20."]


def test_results_of_other_code_are_counted_by_part(asked, cell):
    old, new = {"lab": "1", "update_rule delta": "a"}, {"lab": "1", "update_rule delta": "b"}
    records = [cell("delta", 0, 1.0, code=old), cell("delta", 1, 1.0, code=new), cell("linear", 0, 1.0, code=new)]
    assert told(asked(), records) == [
        "The finished cells were made by 2 versions of update_rule delta (2 and 1 cells). "
        "`hqlt forget` drops the old ones, `hqlt run --again` makes them anew."
    ]


def test_code_that_gave_no_result_or_is_not_known_does_not_count(asked, cell):
    records = [cell("delta", 0, 1.0, code={"lab": "1"}), cell("delta", 1, 1.0)]
    assert told(asked(), records) == []
    assert told(asked(), [*records, cell("linear", 0, state="failed", code={"lab": "2"})]) == ["1 cell failed."]


def test_what_did_not_finish_is_counted_with_its_first_reason(asked, cell):
    records = [
        cell("delta", 0, state="failed"),
        cell("delta", 1, state="failed", why="CUDA\nout of memory."),
        cell("linear", 0, state="diverged", why="the loss is nan"),
        cell("linear", 1, state="pruned"),
        cell("retention", 0, state="running"),
        cell("retention", 1),
    ]
    assert told(asked(), records) == [
        "2 cells failed; delta, seed 1: CUDA out of memory.",
        "1 cell diverged; linear, seed 0: the loss is nan.",
        "1 cell ended early.",
        "1 cell still running.",
        "1 cell still waiting.",
    ]


def test_doubts_about_the_file_stand_in_the_report_too(asked):
    experiment = asked("seeds: 1\n", arms="arms: {late: {model.timing: {name: delayed_stream, window: 12}}}\n")
    assert len(experiment.warnings) == 1 and told(experiment, []) == list(experiment.warnings)


def test_the_end_of_a_curve_says_of_its_fall_what_the_whole_curve_says(logged):
    folder = logged("cell", [1 / step for step in range(1, 101)])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(
            '{"step": 1000, "time": 0.0, "metrics": {"train/loss": 99.0}}\n{"step": 10'
        )  # a step again, half a line
    whole, end = curve(folder, "train/loss"), end_of_curve(folder, "train/loss")
    assert late_fall(end) == late_fall(whole) is not None
    assert end == {step: value for step, value in whole.items() if step > 800}
    assert end_of_curve(folder / "nowhere", "train/loss") == {}


def test_a_baseline_without_a_result_is_named(asked, cell):
    others = [cell(arm, seed, 5.0 + seed) for arm in ("linear", "retention") for seed in range(2)]
    lost = [cell("delta", seed, state="diverged") for seed in range(2)]
    sentence = "delta has no result, so that nothing is compared with it."
    assert sentence in told(asked(), [*lost, *others])
    assert sentence not in told(asked(), [cell("delta", 0, 5.0), *others])


GUESSING = (
    "No arm does better than guessing (test/normalised_accuracy): train longer (train.steps) or make the task easier "
    "before comparing arms."
)


def by_arm(cell, **values):
    return [cell(arm, seed, value) for arm, all_of_it in values.items() for seed, value in enumerate(all_of_it)]


@pytest.mark.parametrize(
    ("values", "guessed"),
    [
        ({"delta": (-2.0, 1.5), "linear": (0.5, -1.0), "retention": (0.0, 0.0)}, True),
        ({"delta": (-2.0, 100.0), "linear": (0.5, -1.0), "retention": (0.0, 0.0)}, False),  # one seed learned it
        ({"delta": (4.0, 4.1), "linear": (0.5, -1.0), "retention": (0.0, 0.0)}, False),  # small, and sure
        ({"delta": (-1.0, 1.0)}, True),  # of the others nothing is known yet
    ],
)
def test_arms_that_all_guess_are_told(asked, cell, values, guessed):
    assert (GUESSING in told(asked(), by_arm(cell, **values))) is guessed


def test_guessing_is_at_the_chance_of_the_task(asked, cell):
    experiment = asked("seeds: 1\nmeasure: {select: valid/accuracy, report: [test/accuracy]}\n", arms="")
    for value, guessed in ((50.4, True), (0.4, True), (70.0, False)):
        record = cell("base", 0, metrics={"test/accuracy": value, "valid/accuracy": value}, state="done")
        assert any("better than guessing (test/accuracy)" in one for one in told(experiment, [record])) is guessed


def test_a_loss_is_not_guessed(asked, cell):
    experiment = asked("seeds: 1\nmeasure: {select: valid/loss, report: [test/loss], direction: minimize}\n", arms="")
    record = cell("base", 0, metrics={"test/loss": 0.0, "valid/loss": 0.0}, state="done")
    assert not any("guessing" in one for one in told(experiment, [record]))


def test_what_was_learned_at_the_trained_lengths_is_not_guessed(asked, cell):
    metrics = {"test/normalised_accuracy": 0.0, "valid/short_normalised_accuracy": 100.0}
    assert GUESSING not in told(asked("seeds: 1\n", arms=""), [cell("base", 0, metrics=metrics, state="done")])
