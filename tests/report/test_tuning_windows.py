"""Tuning windows: which values of a tuned list work, how wide the window is, and caveats on the selection."""

import json
import math

import pytest

from hqlt_lab.report.arm_rows import build_rows
from hqlt_lab.report.study_report import Report
from hqlt_lab.report.wording.caveats import collect_warnings

VALID, TEST = "valid/normalized_accuracy", "test/normalized_accuracy"
LRS = (1e-4, 1e-3, 1e-2, 1e-1)
LIST = "tune: {train.lr: [1e-3, 1e-2, 1e-4, 1e-1]}\nseeds: 3\n"  # not sorted
SOLVED = LIST + "measure: {solved: 90}\n"
ARM = "arms: {delta: {}}\n"


@pytest.fixture
def tune(make_experiment, make_record):
    """Return a function that builds an experiment and its records from the values of each tuned value by seed.

    A text instead of a number is the state of a cell without a result.
    """

    def make(results, extra=SOLVED, arms=ARM, arm="delta", path="train.lr", **fields):
        records = []
        for value, seeds in results.items():
            for seed, result in enumerate(seeds):
                point = {**fields.get("others", {}), path: value}
                if isinstance(result, str):
                    records.append(make_record(arm, seed, state=result, point=point))
                else:
                    records.append(make_record(arm, seed, result, point=point))
        return make_experiment(extra, arms=arms), records

    return make


def window_of(experiment, records):
    (window,) = build_rows(experiment, records)[0].tuning_windows
    return window


def ends(window):
    return (window.low, window.high, window.below, window.above)


def by_lr(*seeds):
    return dict(zip(LRS, seeds, strict=True))


def test_values_are_sorted_and_have_score_extremes_and_solved_fraction(tune):
    window = window_of(*tune(by_lr([1.0, 2.0, 9.0], [80.0, 95.0, 92.0], [95.0, 96.0, 97.0], [3.0, 99.0, 4.0])))
    assert [value.value for value in window.values] == list(LRS)
    assert [value.score for value in window.values] == [2.0, 92.0, 96.0, 4.0]
    assert [value.solved for value in window.values] == [(0, 3), (2, 3), (3, 3), (1, 3)]
    assert [value.works for value in window.values] == [False, True, True, False]
    assert window.values[3].values_by_seed == {0: 3.0, 1: 99.0, 2: 4.0}
    assert (window.chosen, window.bound, window.metric) == (1e-2, 90, VALID)


def test_the_width_lies_between_the_ratios_of_working_and_of_failing_neighbors(tune):
    window = window_of(*tune(by_lr([1.0] * 3, [95.0] * 3, [96.0] * 3, [4.0] * 3)))
    assert ends(window) == (1e-3, 1e-2, 1e-4, 1e-1) and not window.is_narrow
    assert window.factor_range == pytest.approx((10, 1000))


def test_a_single_working_value_is_narrower_than_the_spacing_of_the_list(tune):
    window = window_of(*tune(by_lr([1.0] * 3, [5.0] * 3, [96.0] * 3, [4.0] * 3)))
    assert ends(window) == (1e-2, 1e-2, 1e-3, 1e-1) and window.is_narrow
    assert window.factor_range == pytest.approx((1, 100))


def test_a_window_at_an_end_of_the_list_has_only_a_smallest_width(tune):
    window = window_of(*tune(by_lr([1.0] * 3, [95.0] * 3, [96.0] * 3, [97.0] * 3)))
    assert ends(window) == (1e-3, 1e-1, 1e-4, None)
    assert window.factor_range == (pytest.approx(100), None)


def test_a_window_ends_at_a_value_that_does_not_work(tune):
    window = window_of(*tune(by_lr([96.0] * 3, [5.0] * 3, [97.0] * 3, [95.0] * 3)))
    assert ends(window) == (1e-2, 1e-1, 1e-3, None)  # around the chosen value


def test_an_arm_that_does_not_solve_the_task_has_no_window(tune):
    window = window_of(*tune(by_lr([1.0] * 3, [89.9] * 3, [80.0] * 3, [4.0] * 3)))
    assert ends(window) == (None, None, None, None) and window.factor_range is None
    assert not window.is_narrow and window.is_complete


def test_without_a_threshold_values_near_the_best_score_work(tune):
    window = window_of(*tune(by_lr([64.9] * 3, [65.0] * 3, [70.0] * 3, [60.0] * 3), LIST))
    assert window.bound == 65.0 and [value.works for value in window.values] == [False, True, True, False]
    assert all(value.solved is None for value in window.values)


def test_a_loss_is_near_the_best_within_5_percent(make_experiment, make_record):
    measure = "measure: {select: valid/loss, direction: minimize, report: [test/loss]}\n"
    records = [
        make_record("delta", seed, 1.0, point={"train.lr": lr}, metrics={"valid/loss": loss, "test/loss": 1.0})
        for lr, loss in zip(LRS, (2.2, 2.1, 2.0, 3.0), strict=True)
        for seed in range(3)
    ]
    window = window_of(make_experiment(LIST + measure, arms=ARM), records)
    assert window.bound == pytest.approx(2.1) and ends(window) == (1e-3, 1e-2, 1e-4, 1e-1)
    assert [value.score for value in window.values] == [2.2, 2.1, 2.0, 3.0]


def test_a_loss_solves_the_task_below_the_threshold(make_experiment, make_record):
    measure = "measure: {select: valid/loss, direction: minimize, report: [test/loss], solved: 0.5}\n"
    records = [
        make_record("delta", seed, 1.0, point={"train.lr": lr}, metrics={"valid/loss": loss, "test/loss": 1.0})
        for lr, loss in zip(LRS, (0.6, 0.5, 0.1, 0.51), strict=True)
        for seed in range(3)
    ]
    window = window_of(make_experiment(LIST + measure, arms=ARM), records)
    assert (window.bound, *ends(window)) == (0.5, 1e-3, 1e-2, 1e-4, 1e-1)
    assert [value.solved for value in window.values] == [(0, 3), (3, 3), (3, 3), (0, 3)]


def test_the_solved_metric_may_differ_from_the_selection_metric(make_experiment, make_record):
    """The loss selects 0.01, and the accuracy on the validation split decides which values work."""
    measure = f"measure: {{select: valid/loss, direction: minimize, report: [{TEST}], solved: 90}}\n"
    results = zip(LRS, ((0.4, 80.0), (0.3, 91.0), (0.1, 93.0), (0.2, 99.0)), strict=True)
    records = [
        make_record("delta", seed, 1.0, point={"train.lr": lr}, metrics={"valid/loss": loss, VALID: score, TEST: 50.0})
        for lr, (loss, score) in results
        for seed in range(3)
    ]
    window = window_of(make_experiment(LIST + measure, arms=ARM), records)
    assert (window.chosen, window.metric) == (1e-2, VALID)
    assert ends(window) == (1e-3, 1e-1, 1e-4, None) and window.values[2].score == 0.1


@pytest.mark.parametrize("state", ["diverged", "failed", "pruned"])
def test_lost_seeds_count_as_worst_and_are_named(tune, state):
    experiment, records = tune(by_lr([1.0] * 3, [95.0, state, state], [96.0, 97.0, state], [state] * 3))
    window = window_of(experiment, records)
    assert [value.score for value in window.values] == [1.0, None, 96.0, None]
    assert [value.works for value in window.values] == [False, False, True, False]
    assert window.values[1].solved == (1, 3) and window.values[3].solved == (0, 3)
    rows = Report.from_records(experiment, records).build_training_tables()["Scores of tuned values"].rows
    assert rows[1] == ["delta", "lr=0.001", "–", "", "1 of 3", f"2 {state}", "no"]
    assert rows[3][2:] == ["–", "", "0 of 3", f"3 {state}", "no"]
    assert rows[2][2:] == ["96.0", "96.0 to 97.0", "2 of 3", f"1 {state}", "yes"]


def test_while_cells_are_missing_no_window_is_given(tune):
    experiment, records = tune(by_lr([1.0] * 3, [95.0, "waiting", "running"], [96.0] * 3, [3.0] * 3))
    window = window_of(experiment, records)
    assert not window.is_complete and ends(window) == (None, None, None, None)
    tables = Report.from_records(experiment, records).build_training_tables()
    assert tables["Tuning windows"].rows == [["delta", "lr", "0.01", "not complete", "3"]]
    scores = tables["Scores of tuned values"]
    assert "works" not in scores.columns
    assert scores.rows[1] == ["delta", "lr=0.001", "95.0", "", "1 of 1", "1 waiting, 1 running"]


def test_other_tuned_settings_have_their_chosen_values(make_experiment, make_record):
    extra = "tune: {train.lr: [1e-3, 1e-2], train.weight_decay: [0, 0.1]}\nseeds: 3\nmeasure: {solved: 90}\n"
    scores = {(1e-3, 0): 91.0, (1e-3, 0.1): 5.0, (1e-2, 0): 5.0, (1e-2, 0.1): 99.0}
    records = [
        make_record("delta", seed, score, point={"train.lr": lr, "train.weight_decay": decay})
        for (lr, decay), score in scores.items()
        for seed in range(3)
    ]
    report = Report.from_records(make_experiment(extra, arms=ARM), records)
    lr, decay = report.rows[0].tuning_windows
    assert [value.score for value in lr.values] == [5.0, 99.0] and [value.score for value in decay.values] == [
        5.0,
        99.0,
    ]
    assert decay.low == 0.1 and lr.factor_range == (1.0, None)
    table = report.build_training_tables()["Tuning windows"]
    assert [row[1] for row in table.rows] == ["lr", "weight_decay"] and "their chosen values" in table.notes[-1]


def test_a_window_that_includes_0_has_no_factor(tune):
    window = window_of(
        *tune(
            {0: [95.0] * 3, 0.1: [95.0] * 3, 0.2: [5.0] * 3},
            "tune: {train.weight_decay: [0, 0.1, 0.2]}\nseeds: 3\nmeasure: {solved: 90}\n",
            path="train.weight_decay",
        )
    )
    assert ends(window) == (0, 0.1, None, 0.2) and window.factor_range is None


@pytest.mark.parametrize(
    "section",
    [
        "{train.lr: {low: 1e-4, high: 1e-1, log: true}}",
        "{train.lr: {low: 1e-4, high: 1e-1}, train.weight_decay: [0, 0.1]}",
        "{model.mixer: [sum, vector]}",
        "{train.lr: [1e-3]}",
    ],
)
def test_ranges_and_lists_without_two_numbers_have_no_window(make_experiment, make_record, section):
    experiment = make_experiment(f"tune: {section}\nseeds: 3\n", arms=ARM)
    report = Report.from_records(experiment, [make_record("delta", 0, 5.0, point={"train.lr": 1e-3})])
    assert report.rows[0].tuning_windows == [] and report.build_training_tables() == {}


def test_windows_use_the_tuning_seeds_if_seeds_are_added_until_decided(make_experiment, make_record):
    extra = "tune: {train.lr: [1e-3, 1e-2]}\nseeds: {min: 3, max: 5, until: decided}\nmeasure: {solved: 90}\n"
    arms = "arms: {delta: {}, linear: {model.update_rule: linear_attention}}\n"
    tuning = [
        make_record("delta", 1000 + seed, score, point={"train.lr": lr}, is_reported=False)
        for lr, score in ((1e-3, 95.0), (1e-2, 99.0))
        for seed in range(3)
    ]
    reported = [make_record("delta", seed, 5.0, point={"train.lr": 1e-2}) for seed in range(3)]
    window = window_of(make_experiment(extra, arms=arms), [*tuning, *reported])
    assert [value.score for value in window.values] == [95.0, 99.0]
    assert set(window.values[1].values_by_seed) == {1000, 1001, 1002}


def warnings_of(experiment, records):
    return collect_warnings(experiment, build_rows(experiment, records), records)


def test_a_narrow_window_is_a_caveat(tune):
    results = by_lr([1.0] * 3, [5.0] * 3, [96.0] * 3, [4.0] * 3)
    assert warnings_of(*tune(results)) == [
        "delta: of the values of train.lr only 0.01 works, not its neighbors 0.001 and 0.1. The window is narrower "
        "than the spacing of the list, so a value in between may be better."
    ]
    assert warnings_of(*tune(results | {1e-3: [91.0] * 3})) == []


def test_a_narrow_window_at_the_edge_of_the_list_has_both_caveats(tune):
    edge, narrow = warnings_of(*tune(by_lr([96.0] * 3, [5.0] * 3, [4.0] * 3, [3.0] * 3)))
    assert "the selected train.lr 0.0001 is at the edge" in edge
    assert "only 0.0001 works, not its neighbor 0.001." in narrow


def test_few_tuning_seeds_are_a_caveat(tune, make_experiment, make_record):
    results = by_lr([1.0, 1.0], [91.0, 92.0], [96.0, 95.0], [4.0, 5.0])
    assert warnings_of(*tune(results, SOLVED.replace("seeds: 3", "seeds: 2"))) == [
        "delta: train.lr selected with 2 seeds. With fewer than 3 seeds (seeds), the selection is unreliable."
    ]
    three = {lr: [*seeds, seeds[0]] for lr, seeds in results.items()}
    assert warnings_of(*tune(three)) == []
    lost = warnings_of(*tune(three | {1e-2: [96.0, 95.0, "diverged"]}))
    assert "delta: train.lr selected with 2 seeds." in lost[0] and lost[1] == "1 cell diverged."
    waiting = warnings_of(*tune(three | {1e-2: [96.0, 95.0, "waiting"]}))
    assert waiting == ["1 cell still waiting."]
    searched = "tune: {train.lr: {low: 1e-4, high: 1e-1, log: true}}\ntune_seeds: 1\nseeds: 3\n"
    point = {"train.lr": 1e-3}
    records = [make_record("delta", 1000, 90.0, point=point, is_reported=False)]
    records += [make_record("delta", seed, 90.0, point=point) for seed in range(3)]
    assert warnings_of(make_experiment(searched, arms=ARM), records) == [
        "delta: train.lr selected with 1 seed. With fewer than 3 seeds (tune_seeds), the selection is unreliable."
    ]


TWO_ARMS = "arms: {delta: {}, linear: {model.update_rule: linear_attention}}\n"


@pytest.fixture
def report(tune):
    experiment, delta = tune(by_lr([1.0, 2.0, 3.0], [95.0] * 3, [96.0] * 3, [4.0] * 3), arms=TWO_ARMS)
    _, linear = tune(by_lr([1.0] * 3, [5.0] * 3, ["pruned"] * 3, ["diverged"] * 3), arms=TWO_ARMS, arm="linear")
    return Report.from_records(experiment, [*delta, *linear])


def test_every_format_has_the_windows_and_the_scores(report):
    markdown = report.to_markdown()
    assert "## Tuning windows\n\n| arm | tuned | chosen | window | factor | seeds |" in markdown
    assert "| delta | lr | 0.01 | 0.001 to 0.01 | 10 to 1000 | 3 |" in markdown
    assert "| linear | lr | 0.001 | none |  | 3 |" in markdown
    assert "A value works if the median of valid/normalized_accuracy over seeds is at least 90" in markdown
    assert "| delta | lr=0.0001 | 2.0 | 1.0 to 3.0 | 0 of 3 |  | no |" in markdown
    assert "| linear | lr=0.01 | – |  | 0 of 3 | 3 pruned | no |" in markdown
    latex = report.to_latex()
    assert latex.count("\\begin{table}") == latex.count("\\end{table}") == 3
    assert "\\caption{Tuning windows}" in latex and "delta & lr & 0.01 & 0.001 to 0.01 & 10 to 1000 & 3 \\\\" in latex
    assert "linear & lr=0.01 & – &  & 0 of 3 & 3 pruned & no \\\\" in latex
    titles = [str(table.title) for table in report.to_rich_tables(200)]
    assert titles == ["None", "Tuning windows", "Scores of tuned values"]
    html = report.to_html()
    assert 'id="tuning-windows"' in html and "<td>0.001 to 0.01</td>" in html and 'id="figure-tuning_curves"' in html


def test_the_json_has_the_windows(report):
    delta, linear = json.loads(report.to_json())["rows"]
    (window,) = delta["tuning"]
    assert (window["path"], window["low"], window["high"], window["below"]) == ("train.lr", 1e-3, 1e-2, 1e-4)
    assert window["factor_range"] == pytest.approx([10, 1000]) and window["values"][2]["solved"] == [3, 3]
    assert linear["tuning"][0]["values"][2]["unfinished_counts"] == {"pruned": 3}
    assert linear["tuning"][0]["factor_range"] is None and linear["steps_to_solve"] is None


def test_the_score_that_is_needed_is_a_column_without_a_threshold(tune):
    experiment, records = tune(by_lr([60.0] * 3, [66.0] * 3, [70.0] * 3, [4.0] * 3), LIST)
    table = Report.from_records(experiment, records).build_training_tables()["Tuning windows"]
    assert dict(zip(table.columns, table.rows[0], strict=True))["score needed"] == "65.0"
    assert "within 5 points of the arm's best score" in table.notes[0]


def test_the_figure_has_a_line_per_arm_and_a_band_over_seeds(report):
    figure = report.matplotlib_figures()["tuning_curves"]
    (panel,) = figure.axes
    lines = {line.get_label(): line for line in panel.lines}
    assert list(lines["delta"].get_xdata()) == list(LRS) and list(lines["delta"].get_ydata()) == [2.0, 95.0, 96.0, 4.0]
    assert list(lines["linear"].get_ydata()) == pytest.approx([1.0, 5.0, math.nan, math.nan], nan_ok=True)
    band = panel.collections[0].get_paths()[0].vertices
    assert {tuple(point) for point in band if point[0] == LRS[0]} == {(LRS[0], 1.0), (LRS[0], 3.0)}
    assert panel.get_xscale() == "log" and panel.get_xlabel() == "train.lr" and panel.get_ylabel() == VALID
    assert [label.get_text() for label in panel.get_xticklabels()] == ["0.0001", "0.001", "0.01", "0.1"]
    crosses = [line for line in panel.lines if line.get_marker() == "x"]
    assert [list(line.get_xdata()) for line in crosses] == [[1e-2, 1e-1]]
    assert [line.get_ydata()[0] for line in panel.lines if line.get_linestyle() == "--"] == [90]
    caption = next(each.caption for each in report.figure_set.figures if each.name == "tuning_curves")
    assert "Values of lr that work: delta 0.001 to 0.01; linear none." in caption
    assert "0 to 3 seeds per value with a result" in caption and "Crosses: seeds diverged" in caption


def test_the_caption_counts_windows_of_many_arms(make_experiment, make_record):
    names = [f"a{number}" for number in range(8)]
    arms = ", ".join(f"{name}: {{train.weight_decay: {0.01 * (1 + index)}}}" for index, name in enumerate(names))
    scores = {"a0": (99.0, 99.0, 5.0), "a1": (5.0, 5.0, 5.0)}
    records = [
        make_record(name, seed, score, point={"train.lr": lr})
        for name in names
        for lr, score in zip(LRS, scores.get(name, (5.0, 99.0, 5.0)), strict=False)
        for seed in range(3)
    ]
    extra = "tune: {train.lr: [1e-4, 1e-3, 1e-2]}\nseeds: 3\nmeasure: {solved: 90}\n"
    report = Report.from_records(make_experiment(extra, arms=f"arms: {{{arms}}}\n"), records)
    caption = next(each.caption for each in report.figure_set.figures if each.name == "tuning_curves")
    assert "1 of 8 arms work with several values of lr, 6 with a single one, 1 with none." in caption
