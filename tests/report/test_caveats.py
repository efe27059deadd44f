"""Each warning appears when its condition holds, and only then."""

import json

import pytest

from hqlt_lab.report.arm_rows import build_rows
from hqlt_lab.report.read_curves import late_decrease, read_curve, read_curve_end
from hqlt_lab.report.wording.caveats import collect_warnings
from tests.report.conftest import BASE

GRID = "tune: {train.lr: [1e-3, 1e-2, 1e-1]}\nseeds: 3\n"


def warnings_of(experiment, records):
    return collect_warnings(experiment, build_rows(experiment, records), records)


def tuning_records(make_record, arm, best, path="train.lr", values=(1e-3, 1e-2, 1e-1), **fields):
    """Return three seeds per value; the best value is hardly better than the others, so that all of them work."""
    return [
        make_record(arm, seed, 90.0 if value == best else 89.0, point={path: value}, **fields)
        for value in values
        for seed in range(3)
    ]


def tuning_records_of_all_arms(make_record, best):
    return [record for arm in ("delta", "linear", "retention") for record in tuning_records(make_record, arm, best)]


def test_a_sound_study_has_no_warnings(make_experiment, make_record):
    assert warnings_of(make_experiment(GRID), tuning_records_of_all_arms(make_record, best=1e-2)) == []


@pytest.mark.parametrize("best, shown", [(1e-3, "0.001"), (1e-1, "0.1")])
def test_a_selected_value_on_the_edge_of_the_grid_is_reported(make_experiment, make_record, best, shown):
    records = tuning_records(make_record, "delta", best) + tuning_records_of_all_arms(make_record, 1e-2)[9:]
    assert warnings_of(make_experiment(GRID), records) == [
        f"delta: the selected train.lr {shown} is at the edge of its grid [0.001, 0.01, 0.1]. "
        "A value outside may be better."
    ]


@pytest.mark.parametrize(
    "path, values",
    [("model.mixer", ("sum", "vector")), ("model.output_gate", (False, True)), ("train.clip", (1.0, None))],
)
def test_values_that_are_not_numbers_have_no_edge(make_experiment, make_record, path, values):
    experiment = make_experiment(f"tune: {{{path}: {json.dumps(values)}}}\nseeds: 3\n", arms="")
    assert warnings_of(experiment, tuning_records(make_record, "base", values[0], path, values)) == []


def test_without_a_selected_point_no_edge_is_reported(make_experiment, make_record):
    records = [make_record("base", 0, state="diverged", point={"train.lr": value}) for value in (1e-3, 1e-2, 1e-1)]
    assert warnings_of(make_experiment(GRID, arms=""), records) == ["3 cells diverged."]


@pytest.mark.parametrize(
    "log, value, is_edge",
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
def test_the_outer_5_percent_of_a_range_are_its_edge(make_experiment, make_record, log, value, is_edge):
    experiment = make_experiment(f"tune: {{train.lr: {{low: 1e-4, high: 1e-1, log: {log}}}}}\nseeds: 1\n", arms="")
    point = {"train.lr": value}
    tuning = [make_record("base", 1000 + seed, 90.0, point=point, is_reported=False) for seed in range(3)]
    warnings = warnings_of(experiment, [*tuning, make_record("base", 0, 90.0, point=point)])
    assert ["at the edge of its range 0.0001 to 0.1." in line for line in warnings] == [True] * is_edge


def test_unequal_budgets_are_reported_with_the_cells_of_each_arm(make_experiment, make_record):
    records = tuning_records_of_all_arms(make_record, best=1e-2)[:-1]
    assert warnings_of(make_experiment(GRID), records) == [
        "The arms were tuned with different budgets. Finished tuning cells: delta 9, linear 9, retention 8."
    ]


def test_without_tuning_unequal_cells_are_not_reported(make_experiment, make_record):
    assert (
        warnings_of(
            make_experiment("seeds: 2\n"),
            [make_record("delta", 0, 1.0), make_record("delta", 1, 1.0), make_record("linear", 0, 1.0)],
        )
        == []
    )


def decreasing_loss(rate):
    return [1.0] * 9 + [1.0 - rate]


def test_a_loss_that_still_decreases_in_the_median_seed_is_reported(make_experiment, make_record, make_run_folder):
    rates = [0.0, 0.2, 0.3]
    records = [
        make_record("delta", seed, 1.0, folder=make_run_folder(str(seed), decreasing_loss(rate)))
        for seed, rate in enumerate(rates)
    ]
    assert warnings_of(make_experiment("seeds: 3\n"), records) == [
        "delta: the training loss was still decreasing, by 20 % over the last tenth of the steps. "
        "With more steps the arm may perform better."
    ]


def test_a_converged_loss_is_not_reported(make_experiment, make_record, make_run_folder):
    rates = [0.04, 0.04, 0.5]
    records = [
        make_record("delta", seed, 1.0, folder=make_run_folder(str(seed), decreasing_loss(rate)))
        for seed, rate in enumerate(rates)
    ]
    assert warnings_of(make_experiment("seeds: 3\n"), records) == []


def test_a_decreasing_loss_is_not_reported_if_the_task_is_solved(make_experiment, make_record, make_run_folder):
    records = [make_record("delta", 0, 100.0, folder=make_run_folder("a", decreasing_loss(0.5)))]
    assert warnings_of(make_experiment("seeds: 1\nmeasure: {solved: 99.0}\n"), records) == []
    assert len(warnings_of(make_experiment("seeds: 1\nmeasure: {solved: 101.0}\n"), records)) == 1


def test_cells_without_logged_curves_give_no_warning(make_experiment, make_record, tmp_path):
    assert (
        warnings_of(make_experiment("seeds: 1\n"), [make_record("delta", 0, 90.0, folder=tmp_path / "nowhere")]) == []
    )


def test_incomplete_lines_are_skipped_and_the_first_value_of_a_step_is_used(make_run_folder):
    folder = make_run_folder("torn", [3.0, 2.0])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 20, "time": 1.0, "metrics": {"train/loss": 9.0}}\n')
        file.write('{"step": 30, "time": 1.0, "metrics": {"valid/accuracy": 50.0}}\n')
        file.write('{"step": 30, "time": 1.0, "metrics": {"train/loss": 1.0}}\n')
        file.write('{"step": 40, "time": 1.0, "metrics": {"train/loss": NaN}}\n[1]\n')
        file.write('{"step": 50, "time": 1.0, "metr')
    assert read_curve(folder, "train/loss") == {10: 3.0, 20: 2.0, 30: 1.0}


def test_the_last_tenth_is_compared_with_the_tenth_before():
    assert late_decrease({step: 4.0 if step <= 80 else 2.0 if step <= 90 else 1.0 for step in range(1, 101)}) == 0.5
    assert late_decrease({step: float(step) for step in range(1, 101)}) < 0
    assert late_decrease({}) is None and late_decrease({100: 1.0}) is None


def test_test_lengths_beyond_training_are_reported_once(make_experiment, make_record):
    experiment = make_experiment("cross: {'task.test_length': [[20, 20], [20, 40]]}\nseeds: 1\n")
    assert warnings_of(experiment, []) == [
        "Test sequences are longer than training sequences: up to 40, training up to 20."
    ]


def test_results_of_several_code_versions_are_counted_by_component(make_experiment, make_record):
    old, new = {"lab": "1", "update_rule delta": "a"}, {"lab": "1", "update_rule delta": "b"}
    records = [
        make_record("delta", 0, 1.0, code=old),
        make_record("delta", 1, 1.0, code=new),
        make_record("linear", 0, 1.0, code=new),
    ]
    assert warnings_of(make_experiment(), records) == [
        "The finished cells were trained with 2 versions of update_rule delta (2 and 1 cells). "
        "`hqlt run --again` trains cells again, `hqlt forget` marks old results as superseded."
    ]


def test_unknown_code_and_code_without_a_result_are_not_counted(make_experiment, make_record):
    records = [make_record("delta", 0, 1.0, code={"lab": "1"}), make_record("delta", 1, 1.0)]
    assert warnings_of(make_experiment(), records) == []
    assert warnings_of(make_experiment(), [*records, make_record("linear", 0, state="failed", code={"lab": "2"})]) == [
        "1 cell failed."
    ]


def test_unfinished_cells_are_counted_with_their_first_reason(make_experiment, make_record):
    records = [
        make_record("delta", 0, state="failed"),
        make_record("delta", 1, state="failed", why="CUDA\nout of memory."),
        make_record("linear", 0, state="diverged", why="the loss is nan"),
        make_record("linear", 1, state="pruned"),
        make_record("retention", 0, state="running"),
        make_record("retention", 1),
    ]
    assert warnings_of(make_experiment(), records) == [
        "2 cells failed; delta, seed 1: CUDA out of memory.",
        "1 cell diverged; linear, seed 0: the loss is nan.",
        "1 cell ended early.",
        "1 cell still running.",
        "1 cell still waiting.",
    ]


def test_warnings_about_the_experiment_file_are_included(make_experiment):
    experiment = make_experiment(
        "seeds: 1\n", arms="arms: {late: {model.timing: {name: delayed_stream, window: 12}}}\n"
    )
    assert len(experiment.warnings) == 1 and warnings_of(experiment, []) == list(experiment.warnings)


def test_the_end_of_a_curve_gives_the_same_decrease_as_the_whole_curve(make_run_folder):
    folder = make_run_folder("cell", [1 / step for step in range(1, 101)])
    with (folder / "metrics.jsonl").open("a") as file:
        # a repeated step, and an incomplete line
        file.write('{"step": 1000, "time": 0.0, "metrics": {"train/loss": 99.0}}\n{"step": 10')
    curve, end = read_curve(folder, "train/loss"), read_curve_end(folder, "train/loss")
    assert late_decrease(end) == late_decrease(curve) is not None
    assert end == {step: value for step, value in curve.items() if step > 800}
    assert read_curve_end(folder / "nowhere", "train/loss") == {}


def test_a_baseline_without_a_result_is_reported(make_experiment, make_record):
    others = [make_record(arm, seed, 5.0 + seed) for arm in ("linear", "retention") for seed in range(2)]
    lost = [make_record("delta", seed, state="diverged") for seed in range(2)]
    sentence = "delta has no result. Arms with this baseline are not compared."
    assert sentence in warnings_of(make_experiment(), [*lost, *others])
    assert sentence not in warnings_of(make_experiment(), [make_record("delta", 0, 5.0), *others])


SMALL_TEST = BASE.replace("test_length", "eval_size: 256, test_length")
CHANCE_WARNING = (
    "No arm performs above chance (test/normalized_accuracy). Train longer (train.steps) or make the task easier "
    "before comparing arms."
)


def records_by_arm(make_record, **values):
    return [
        make_record(arm, seed, value) for arm, seed_values in values.items() for seed, value in enumerate(seed_values)
    ]


@pytest.mark.parametrize(
    ("values", "is_at_chance"),
    [
        ({"delta": (-2.0, 1.5), "linear": (0.5, -1.0), "retention": (0.0, 0.0)}, True),
        ({"delta": (-2.0, 100.0), "linear": (0.5, -1.0), "retention": (0.0, 0.0)}, False),  # one seed solved the task
        (
            {"delta": (4.0, 4.1), "linear": (0.5, -1.0), "retention": (0.0, 0.0)},
            False,
        ),  # small, but clearly above chance
        ({"delta": (-1.0, 1.0)}, True),  # the other arms have no results yet
    ],
)
def test_a_study_whose_arms_are_all_at_chance_is_reported(make_experiment, make_record, values, is_at_chance):
    assert (CHANCE_WARNING in warnings_of(make_experiment(), records_by_arm(make_record, **values))) is is_at_chance


def test_the_chance_level_is_that_of_the_task(make_experiment, make_record):
    experiment = make_experiment("seeds: 1\nmeasure: {select: valid/accuracy, report: [test/accuracy]}\n", arms="")
    for value, is_at_chance in ((50.4, True), (0.4, True), (70.0, False)):
        record = make_record("base", 0, metrics={"test/accuracy": value, "valid/accuracy": value}, state="done")
        assert (
            any("above chance (test/accuracy)" in warning for warning in warnings_of(experiment, [record]))
            is is_at_chance
        )


def test_a_loss_has_no_chance_level(make_experiment, make_record):
    experiment = make_experiment(
        "seeds: 1\nmeasure: {select: valid/loss, report: [test/loss], direction: minimize}\n", arms=""
    )
    record = make_record("base", 0, metrics={"test/loss": 0.0, "valid/loss": 0.0}, state="done")
    assert not any("above chance" in warning for warning in warnings_of(experiment, [record]))


def test_seeds_that_agree_just_above_chance_are_at_chance(make_experiment, make_record):
    for errors in ({}, {"test/normalized_accuracy": 1.1}):
        records = [make_record("base", seed, 1.2, errors=errors) for seed in range(2)]
        experiment = make_experiment("seeds: 2\n", arms="", base=SMALL_TEST)
        assert CHANCE_WARNING in warnings_of(experiment, records)
    # nearly equal seeds on a large test: the sampling error of the test remains
    records = [make_record("base", seed, 1.2 + seed / 1000, errors=errors) for seed in range(2)]
    assert CHANCE_WARNING in warnings_of(make_experiment("seeds: 2\n", arms=""), records)


def test_an_arm_that_learned_the_trained_lengths_is_not_at_chance(make_experiment, make_record):
    metrics = {"test/normalized_accuracy": 0.0, "valid/short_normalized_accuracy": 100.0}
    assert CHANCE_WARNING not in warnings_of(
        make_experiment("seeds: 1\n", arms=""), [make_record("base", 0, metrics=metrics, state="done")]
    )


def test_scores_of_shortcuts_are_reported_with_the_arms_below(make_experiment, make_record):
    task = "task: {name: state_based_recall, values: 2, train_length: [8, 8], test_length: [8, 8]}"
    base = BASE.replace("task: {name: parity, train_length: [3, 20], test_length: [20, 20]}", task)
    experiment = make_experiment("measure: {select: valid/accuracy, report: [test/accuracy]}\n", base=base)
    values = {"delta": 99.0, "linear": 68.0, "retention": 75.0}
    records = [
        make_record(arm, seed, metrics={"test/accuracy": value + seed, "valid/accuracy": value}, state="done")
        for arm, value in values.items()
        for seed in range(3)
    ]
    scores = "68.8 (the most frequent of the five values) and 60.2 (the value before the swaps)"
    assert (
        f"Without solving the task, shortcuts reach a test/accuracy of {scores}. "
        "Arms that are not above the highest of these scores: linear."
    ) in warnings_of(experiment, records)
    above = [record for record in records if record.arm == "delta"]
    assert any(sentence.endswith("All arms are above these scores.") for sentence in warnings_of(experiment, above))
