"""Comparison of settings, code and results, and with published values."""

import json
import re
from dataclasses import replace

import pytest
from scipy import stats

from hqlt_lab.report.compare.build_comparison import compare_targets
from hqlt_lab.report.compare.comparison_targets import ComparedCell, study_from_file
from hqlt_lab.report.compare.mean_difference import mean_difference
from hqlt_lab.report.compare.published_differences import rounding_error
from hqlt_lab.rundir.lm_eval_results import EvalProtocol
from hqlt_lab.rundir.outcome import Outcome
from tests.issues import raises_issue

METRIC = "test/normalized_accuracy"


def make_outcome(**fields):
    defaults = {"status": "done", "step": 300, "metrics": {METRIC: 50.0}, "seconds": 9.0, "tokens_per_second": 100.0}
    return Outcome(**(defaults | {"parameters": 1000} | fields))


def make_cell(name, settings=None, **fields):
    all_settings = {"seed": 0, "arm": "delta", "train.lr": 0.001, "model.mixer.name": "sum", "train.clip": None}
    all_settings |= settings or {}
    return ComparedCell(
        name=name, settings=all_settings, **({"outcome": make_outcome(), "hashes_by_source": {"lab": ["a"]}} | fields)
    )


def get_section(targets, name):
    (matching,) = [section for section in compare_targets(targets).sections if section.name == name]
    return matching


def table_rows(targets, name):
    table = get_section(targets, name).table
    return {row[0]: dict(zip(table.columns[1:], row[1:], strict=True)) for row in table.rows} if table else {}


@pytest.fixture
def make_study(make_experiment, make_record):
    """Return a function that builds a study from values by arm and seed."""

    def make(name, values, extra="", arms="arms: {delta: {}, linear: {model.update_rule: linear_attention}}\n"):
        seeds = sorted({seed for by_seed in values.values() for seed in by_seed}) or [0, 1]
        experiment = make_experiment(f"seeds: {seeds}\n{extra}", arms=arms)
        records = [make_record(arm, seed, value) for arm, by_seed in values.items() for seed, value in by_seed.items()]
        return study_from_file(name, experiment, records, ())

    return make


def test_differing_settings_are_listed_and_equal_ones_counted():
    first, second = (
        make_cell("a"),
        make_cell("b", {"train.lr": 0.0011234567, "model.mixer.width": 3, "train.clip": 1.0}),
    )
    assert table_rows([first, second], "settings") == {
        "train.lr": {"a": "0.001", "b": "0.0011234567"},
        "model.mixer.width": {"a": "-", "b": "3"},
        "train.clip": {"a": "null", "b": "1.0"},
    }
    assert get_section([first, second], "settings").sentences == ["3 settings are the same."]


def test_equal_cells_are_reported_as_equal():
    sentences = [
        sentence
        for section in compare_targets([make_cell("a"), make_cell("b")]).sections
        for sentence in section.sentences
    ]
    assert sentences == [
        "All settings are the same.",
        "All were trained with the same code, which has not changed since.",
    ]


def test_sources_with_different_hashes_are_listed():
    first = make_cell(
        "a",
        hashes_by_source={"lab": ["1"], "mixer sum": ["5"], "timing x": ["7"]},
        changed_sources=["lab"],
        commits=["c" * 40],
    )
    second = make_cell(
        "b", hashes_by_source={"lab": ["2"], "mixer vector": ["6"], "timing x": ["7"]}, commits=["d" * 40]
    )
    assert table_rows([first, second], "code") == {
        "hqlt_lab": {"a": "1", "b": "2"},  # a component that only one cell uses is a difference in settings
        "git commit": {"a": "c" * 12, "b": "d" * 12},
    }
    assert get_section([first, second], "code").sentences == [
        "Whether timing x changed is unknown, because it is not loaded: use hqlt --with FILE.py.",
        "Changed since training: hqlt_lab.",
    ]


def test_a_component_that_is_not_installed_is_not_called_unchanged():
    cells = [make_cell(name, hashes_by_source={"lab": ["1"], "mixer my_own": ["5"]}) for name in "ab"]
    same, unknown = get_section(cells, "code").sentences
    assert same == "All were trained with the same code." and unknown.startswith(
        "Whether mixer my_own changed is unknown"
    )


def test_unknown_code_is_not_called_the_same():
    assert get_section([make_cell("a"), make_cell("b", hashes_by_source={})], "code").sentences == [
        "The code that trained b is not known."
    ]


def test_results_of_cells_are_listed_with_differences_from_the_first():
    cells = [
        make_cell(name, outcome=make_outcome(metrics={METRIC: value}))
        for name, value in (("a", 50.0), ("b", 48.5), ("c", 60.0))
    ]
    lines = table_rows(cells, "results")
    assert lines[METRIC] == {
        "a": "50.0", "b": "48.5", "c": "60.0", "difference of b": "-1.5", "difference of c": "10.0",
    }  # fmt: skip
    assert lines["parameters"]["difference of b"] == "0"
    assert "state_bytes" not in lines  # not measured in any cell


def test_cells_without_a_result_and_diverged_cells_are_named():
    cells = [
        make_cell("a", outcome=None),
        make_cell("b", outcome=make_outcome(status="diverged", message="The loss is nan.")),
    ]
    assert get_section(cells, "results").sentences == ["a has no result yet.", "b diverged: The loss is nan."]


def test_settings_that_differ_in_some_arms_are_listed_with_the_names_of_these_arms(make_study):
    first = make_study("a", {})
    arms = "arms: {delta: {}, linear: {model.update_rule: linear_attention, model.mixer: sum}, new: {model.heads: 1}}\n"
    second = make_study("b", {}, arms=arms)
    lines = table_rows([first, second], "settings")
    assert lines == {"model.mixer.name (linear)": {"a": "vector", "b": "sum"}}
    assert "Only b has the arm new." in get_section([first, second], "settings").sentences


def test_seeds_tuned_values_and_base_settings_of_studies_are_compared(make_study):
    first = make_study("a", {}, "tune: {train.lr: [0.1, 0.2]}\n")
    second = make_study(
        "b", {"delta": {0: 1.0, 1: 1.0, 2: 1.0}}, "tune: {train.lr: [0.1, 0.3]}\nmeasure: {solved: 95}\n"
    )
    assert table_rows([first, second], "settings") == {
        "measure.solved": {"a": "null", "b": "95"},
        "tune.train.lr": {"a": "[0.1, 0.2]", "b": "[0.1, 0.3]"},
        "seeds": {"a": "[0, 1]", "b": "[0, 1, 2]"},
    }


def test_studies_without_a_common_arm_are_compared_by_their_first_arms(make_study):
    studies = [make_study("a", {}, arms="arms: {x: {}}\n"), make_study("b", {}, arms="arms: {y: {model.mixer: sum}}\n")]
    assert table_rows(studies, "settings") == {"model.mixer.name": {"a": "vector", "b": "sum"}}
    assert (
        "No arm is in all studies. The settings are those of their first arms: x and y."
        in get_section(studies, "settings").sentences
    )
    assert get_section(studies, "results").table is None


def test_arms_are_paired_by_seed_only_if_their_seeds_are_equal(make_study):
    first = make_study("a", {"delta": {0: 50.0, 1: 60.0, 2: 70.0}, "linear": {0: 1.0, 1: 2.0}})
    second = make_study("b", {"delta": {0: 51.0, 1: 61.5, 2: 71.0}, "linear": {5: 4.0, 6: 6.0, 7: 5.0}})
    lines = table_rows([first, second], "results")
    assert lines["delta"]["a"] == "60.0 ± 10.0 (3)"
    assert lines["delta"]["difference [95 % CI]"] == "1.2 [0.4, 1.9], paired by seed"
    assert lines["linear"]["difference [95 % CI]"].endswith("], Welch")


def test_a_metric_reported_by_one_study_is_shown_for_both(make_study):
    valid = "valid/normalized_accuracy"
    first = make_study("a", {"delta": {0: 10.0, 1: 12.0}})
    second = make_study("b", {"delta": {0: 11.0, 1: 13.0}}, extra=f"measure: {{report: [{valid}]}}\n")
    lines = table_rows([first, second], "results")
    for metric in (METRIC, valid):
        line = lines[f"delta: {metric}"]
        assert (line["a"], line["b"]) == ("11.0 ± 1.0 (2)", "12.0 ± 1.0 (2)")
        assert line["difference [95 % CI]"] == "1.0 [0.9, 1.1], paired by seed", "no narrower than rounding"


def test_paired_and_welch_intervals_equal_those_of_scipy():
    a, b = [1.0, 2.0, 4.0], [3.0, 9.0, 4.0, 5.5]
    # one common seed is not enough for pairing
    unpaired = mean_difference(dict(enumerate(a)), dict(enumerate(b, start=2)))
    expected = stats.ttest_ind(b, a, equal_var=False).confidence_interval()
    assert (unpaired.low, unpaired.high) == pytest.approx((expected.low, expected.high))
    paired = mean_difference(dict(enumerate(a)), dict(enumerate(b[:3])))
    assert paired == mean_difference(dict(enumerate(a)), dict(enumerate(b))), "only common seeds are paired"
    expected = stats.ttest_rel(b[:3], a).confidence_interval()
    assert (paired.low, paired.high) == pytest.approx((expected.low, expected.high))


def test_differences_are_paired_by_seed_whatever_the_order_of_the_seeds():
    values, differences = {0: 10.0, 1: 50.0, 2: 90.0}, {2: 3.0, 7: 80.0, 0: 1.0, 1: 2.0}
    paired = mean_difference(values, {seed: values.get(seed, 0.0) + each for seed, each in differences.items()})
    expected = stats.ttest_1samp([1.0, 2.0, 3.0], 0).confidence_interval()
    assert (paired.mean, paired.low, paired.high) == pytest.approx((2.0, expected.low, expected.high))


def test_intervals_of_differences_have_the_width_of_rounding_and_only_possible_values(make_study):
    first = make_study("a", {"delta": {0: 100.0, 1: 100.0}, "linear": {0: 100.0, 1: -100.0}})
    paired = make_study("b", {"delta": {0: 90.0, 1: 90.0}, "linear": {0: -40.0, 1: 100.0}})
    unpaired = make_study("c", {"delta": {2: 90.0, 3: 90.0}, "linear": {2: 40.0, 3: 80.0}})
    resolution = 200 / 8192
    for other in (paired, unpaired):
        delta, linear = (
            entry["differences"][1] for entry in get_section([first, other], "results").entries if entry["arm"]
        )
        degrees_of_freedom = 1 if other is paired else 2
        half_width = stats.t.ppf(0.975, degrees_of_freedom) * resolution / (6**0.5 * 2**0.5)
        assert (delta["low"], delta["high"]) == pytest.approx((-10 - half_width, -10 + half_width))
        assert (linear["low"], linear["high"]) == (-200, 200), "parity has a chance level of 50 %"


def test_one_seed_has_a_difference_and_no_interval():
    assert mean_difference({0: 1.0}, {1: 3.0}).mean == 2.0 and mean_difference({0: 1.0}, {1: 3.0}).low is None
    assert mean_difference({}, {0: 1.0}) is None
    difference = mean_difference({0: 1.0, 1: 1.0}, {2: 2.0, 3: 2.0})
    assert (difference.low, difference.high) == (1.0, 1.0)


PUBLISHED = (
    f"published: {{delta: {{{METRIC}: {{best: 100.0, median: 99.7, mad: 0.1}}}}, "
    f"linear: {{{METRIC}: {{best: 3.5}}}}}}\n"
)


def published_verdicts(study):
    return {(entry["arm"], entry["statistic"]): entry["verdict"] for entry in get_section([study], "published").entries}


def test_published_values_are_inside_outside_or_without_a_result(make_study):
    values = {"delta": {0: 99.0, 1: 99.6, 2: 100.0}}
    assert published_verdicts(make_study("a", values, PUBLISHED)) == {
        ("delta", "best"): "inside", ("delta", "median"): "inside", ("linear", "best"): "no result yet",
    }  # fmt: skip
    values = {"delta": {0: 80.0, 1: 80.2, 2: 80.1}, "linear": {0: 3.5449}}
    study = make_study("a", values, PUBLISHED)
    assert published_verdicts(study) == {
        ("delta", "best"): "outside", ("delta", "median"): "outside", ("linear", "best"): "no spread known",
    }  # fmt: skip
    assert get_section([study], "published").sentences == ["Of 3 published numbers: 2 outside, 1 no spread known."]


def test_the_reach_is_the_prediction_interval_or_the_published_spread(make_study):
    entries = get_section([make_study("a", {"delta": {0: 98.0, 1: 99.0, 2: 100.0}}, PUBLISHED)], "published").entries
    expected = stats.t(2).ppf(0.975) * (1 + 1 / 3) ** 0.5
    assert entries[0]["reach"] == pytest.approx(expected + 0.05)
    entries = get_section([make_study("a", {"delta": {0: 99.4, 1: 99.4}}, PUBLISHED)], "published").entries
    assert entries[1]["reach"] == pytest.approx(0.35) and entries[1]["verdict"] == "inside"


def test_published_spreads_and_seed_counts_are_not_compared(make_study):
    published = f"published: {{delta: {{{METRIC}: {{median: 99.7, std: 4.0, seeds: 5}}}}}}\n"
    (entry,) = get_section([make_study("a", {"delta": {0: 94.0}}, published)], "published").entries
    assert entry["statistic"] == "median" and entry["reach"] == pytest.approx(8.05) and entry["verdict"] == "inside"


def test_results_of_different_lm_eval_protocols_are_not_compared(make_study):
    metric, studies = "eval/piqa/acc", []
    for name, length in (("a", 2048), ("b", 512), ("c", 2048)):
        protocol = EvalProtocol(harness="0.4", length=length, limit=None, source="")
        study = make_study(name, {"delta": {0: 1.0, 1: 2.0}})
        records = [
            replace(record, metrics={metric: 50.0}, protocols={metric: (protocol,)})
            for record in study.rows_by_arm["delta"].records
        ]
        experiment = replace(study.experiment, measure=replace(study.experiment.measure, report=[metric]))
        studies.append(study_from_file(name, experiment, records, ()))
    section = get_section(studies, "results")
    assert [summary and summary["median"] for summary in section.entries[0]["summaries"]] == [50.0, None, 50.0]
    assert "eval/piqa/acc: b omitted, because its lm-eval protocol differs from that of a." in section.sentences


def test_the_rounding_error_is_half_a_unit_of_the_last_digit():
    assert [rounding_error(value) for value in (99.7, 100, 2.25)] == pytest.approx([0.05, 0.5, 0.005])


def test_invalid_comparisons_raise_an_error(make_study):
    with raises_issue("targets", "cells_and_studies"):
        compare_targets([make_study("a", {}), make_cell("b")])
    with raises_issue("published", "nothing_published"):
        compare_targets([make_study("a", {})])
    with raises_issue("targets", "single_cell"):
        compare_targets([make_cell("a")])


def test_a_comparison_is_rendered_as_markdown_and_json(make_study):
    comparison = compare_targets([make_cell("a|b"), make_cell("b", {"train.lr": 0.1})])
    assert re.search(r"^\| setting \| a\\\|b \| b \|$", comparison.to_markdown(), re.MULTILINE)
    assert [line for line in comparison.to_markdown().splitlines() if line.startswith("## ")] == [
        "## Settings", "## Code", "## Results",
    ]  # fmt: skip
    content = json.loads(comparison.to_json())
    assert content["settings"]["entries"][0] == {"path": "train.lr", "values": [0.001, 0.1]}
    assert json.loads(compare_targets([make_study("a", {"delta": {0: 1.0, 1: 2.0}}, PUBLISHED)]).to_json())[
        "published"
    ]["entries"]
