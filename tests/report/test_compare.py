"""Things side by side: settings, code, results, and what was published."""

import json
import re
from dataclasses import replace

import pytest
from scipy import stats

from hqlt_lab.errors import ConfigError
from hqlt_lab.report.compare.comparison import compare
from hqlt_lab.report.compare.published import rounding
from hqlt_lab.report.compare.subject import Trained, study_of_file
from hqlt_lab.report.compare.two_samples import gap
from hqlt_lab.train.outcome import Outcome

TEST = "test/normalised_accuracy"


def outcome(**told):
    known = {"status": "done", "step": 300, "metrics": {TEST: 50.0}, "seconds": 9.0, "tokens_per_second": 100.0}
    return Outcome(**(known | {"parameters": 1000} | told))


def trained(name, settings=None, **told):
    known = {"seed": 0, "arm": "delta", "train.lr": 0.001, "model.mixer.name": "sum", "train.clip": None}
    known |= settings or {}
    return Trained(name=name, settings=known, **({"outcome": outcome(), "versions": {"lab": ["a"]}} | told))


def section(things, name):
    (found,) = [one for one in compare(things).sections if one.name == name]
    return found


def rows(things, name):
    table = section(things, name).table
    return {row[0]: dict(zip(table.columns[1:], row[1:], strict=True)) for row in table.rows} if table else {}


@pytest.fixture
def study(asked, cell):
    """A study whose arms have these values, by seed."""

    def make(name, values, more="", arms="arms: {delta: {}, linear: {model.update_rule: linear_attention}}\n"):
        seeds = sorted({seed for told in values.values() for seed in told}) or [0, 1]
        experiment = asked(f"seeds: {seeds}\n{more}", arms=arms)
        records = [cell(arm, seed, value) for arm, told in values.items() for seed, value in told.items()]
        return study_of_file(name, experiment, records, ())

    return make


def test_only_settings_that_differ_are_told_and_the_others_counted():
    first, second = trained("a"), trained("b", {"train.lr": 0.0011234567, "model.mixer.width": 3, "train.clip": 1.0})
    assert rows([first, second], "settings") == {
        "train.lr": {"a": "0.001", "b": "0.0011234567"},
        "model.mixer.width": {"a": "-", "b": "3"},
        "train.clip": {"a": "null", "b": "1.0"},
    }
    assert section([first, second], "settings").said == ["3 settings are the same."]


def test_cells_that_are_the_same_say_so():
    said = [sentence for one in compare([trained("a"), trained("b")]).sections for sentence in one.said]
    assert said == ["All settings are the same.", "The same code made all of them, and it has not changed since."]


def test_code_differs_where_the_same_source_has_another_hash():
    first = trained(
        "a", versions={"lab": ["1"], "mixer sum": ["5"], "timing x": ["7"]}, changed=["lab"], commits=["c" * 40]
    )
    second = trained("b", versions={"lab": ["2"], "mixer vector": ["6"], "timing x": ["7"]}, commits=["d" * 40])
    assert rows([first, second], "code") == {
        "the lab": {"a": "1", "b": "2"},  # a part that only one uses is a difference of settings
        "git commit": {"a": "c" * 12, "b": "d" * 12},
    }
    assert section([first, second], "code").said == [
        "Whether timing x changed cannot be told, as it is not here: hqlt --with FILE.py ...",
        "Today another code than theirs is installed: the lab.",
    ]


def test_a_part_that_is_not_here_is_not_called_unchanged():
    mine = [trained(name, versions={"lab": ["1"], "mixer my_own": ["5"]}) for name in "ab"]
    same, unknown = section(mine, "code").said
    assert same == "The same code made all of them." and unknown.startswith("Whether mixer my_own changed cannot be")


def test_code_that_is_not_known_is_not_called_the_same():
    assert section([trained("a"), trained("b", versions={})], "code").said == [
        "Of b it is not known which code made it."
    ]


def test_results_of_cells_stand_side_by_side_with_the_difference_to_the_first():
    cells = [
        trained(name, outcome=outcome(metrics={TEST: value})) for name, value in (("a", 50.0), ("b", 48.5), ("c", 60.0))
    ]
    found = rows(cells, "results")
    assert found[TEST] == {
        "a": "50.0", "b": "48.5", "c": "60.0", "difference of b": "-1.5", "difference of c": "10.0",
    }  # fmt: skip
    assert found["parameters"]["difference of b"] == "0"
    assert "state_bytes" not in found  # nobody knows it


def test_a_cell_without_a_result_and_one_that_diverged_are_named():
    cells = [trained("a", outcome=None), trained("b", outcome=outcome(status="diverged", message="The loss is nan."))]
    assert section(cells, "results").said == ["a has no result yet.", "b diverged: The loss is nan."]


def test_settings_of_studies_are_told_once_for_all_arms_and_by_name_for_some(study):
    first = study("a", {})
    arms = "arms: {delta: {}, linear: {model.update_rule: linear_attention, model.mixer: sum}, new: {model.heads: 1}}\n"
    second = study("b", {}, arms=arms)
    found = rows([first, second], "settings")
    assert found == {"model.mixer.name (linear)": {"a": "vector", "b": "sum"}}
    assert "Only b has the arm new." in section([first, second], "settings").said


def test_seeds_tuned_values_and_base_settings_of_studies_are_compared(study):
    first = study("a", {}, "tune: {train.lr: [0.1, 0.2]}\n")
    second = study("b", {"delta": {0: 1.0, 1: 1.0, 2: 1.0}}, "tune: {train.lr: [0.1, 0.3]}\nmeasure: {solved: 95}\n")
    assert rows([first, second], "settings") == {
        "measure.solved": {"a": "null", "b": "95"},
        "tune.train.lr": {"a": "[0.1, 0.2]", "b": "[0.1, 0.3]"},
        "seeds": {"a": "[0, 1]", "b": "[0, 1, 2]"},
    }


def test_studies_without_a_common_arm_compare_their_first(study):
    things = [study("a", {}, arms="arms: {x: {}}\n"), study("b", {}, arms="arms: {y: {model.mixer: sum}}\n")]
    assert rows(things, "settings") == {"model.mixer.name": {"a": "vector", "b": "sum"}}
    assert (
        "No arm is in all of them; the settings are those of their first ones: x and y."
        in section(things, "settings").said
    )
    assert section(things, "results").table is None


def test_arms_of_one_title_are_paired_where_the_seeds_are_equal_and_otherwise_not(study):
    first = study("a", {"delta": {0: 50.0, 1: 60.0, 2: 70.0}, "linear": {0: 1.0, 1: 2.0}})
    second = study("b", {"delta": {0: 51.0, 1: 61.5, 2: 71.0}, "linear": {5: 4.0, 6: 6.0, 7: 5.0}})
    found = rows([first, second], "results")
    assert found["delta"]["a"] == "60.0 ± 10.0 (3)"
    assert found["delta"]["difference [95 %]"] == "1.2 [0.4, 1.9], paired by seed"
    assert found["linear"]["difference [95 %]"].endswith("], Welch")


def test_a_metric_that_one_study_alone_reports_is_shown_of_both(study):
    valid = "valid/normalised_accuracy"
    first = study("a", {"delta": {0: 10.0, 1: 12.0}})
    second = study("b", {"delta": {0: 11.0, 1: 13.0}}, more=f"measure: {{report: [{valid}]}}\n")
    found = rows([first, second], "results")
    for metric in (TEST, valid):
        line = found[f"delta: {metric}"]
        assert (line["a"], line["b"]) == ("11.0 ± 1.0 (2)", "12.0 ± 1.0 (2)")
        assert line["difference [95 %]"] == "1.0 [1.0, 1.0], paired by seed"


def test_welch_and_pairs_are_those_of_scipy():
    a, b = [1.0, 2.0, 4.0], [3.0, 9.0, 4.0, 5.5]
    found = gap(dict(enumerate(a)), dict(enumerate(b, start=2)))  # one seed in common is no pair of any use
    expected = stats.ttest_ind(b, a, equal_var=False).confidence_interval()
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    paired = gap(dict(enumerate(a)), dict(enumerate(b[:3])))
    assert paired == gap(dict(enumerate(a)), dict(enumerate(b))), "the seeds that both have"
    expected = stats.ttest_rel(b[:3], a).confidence_interval()
    assert (paired.low, paired.high) == pytest.approx((expected.low, expected.high))


def test_one_seed_has_a_difference_and_no_interval():
    assert gap({0: 1.0}, {1: 3.0}).mean == 2.0 and gap({0: 1.0}, {1: 3.0}).low is None
    assert gap({}, {0: 1.0}) is None
    same = gap({0: 1.0, 1: 1.0}, {2: 2.0, 3: 2.0})
    assert (same.low, same.high) == (1.0, 1.0)


PUBLISHED = (
    f"published: {{delta: {{{TEST}: {{best: 100.0, median: 99.7, mad: 0.1}}}}, linear: {{{TEST}: {{best: 3.5}}}}}}\n"
)


def verdicts(found):
    return {(one["arm"], one["word"]): one["verdict"] for one in section([found], "published").entries}


def test_published_numbers_are_inside_outside_or_wait_for_a_result(study):
    values = {"delta": {0: 99.0, 1: 99.6, 2: 100.0}}
    assert verdicts(study("a", values, PUBLISHED)) == {
        ("delta", "best"): "inside", ("delta", "median"): "inside", ("linear", "best"): "no result yet",
    }  # fmt: skip
    values = {"delta": {0: 80.0, 1: 80.2, 2: 80.1}, "linear": {0: 3.5449}}
    found = study("a", values, PUBLISHED)
    assert verdicts(found) == {
        ("delta", "best"): "outside", ("delta", "median"): "outside", ("linear", "best"): "no spread known",
    }  # fmt: skip
    assert section([found], "published").said == ["Of 3 published numbers: 2 outside, 1 no spread known."]


def test_the_reach_is_that_of_one_more_seed_or_the_published_spread(study):
    found = section([study("a", {"delta": {0: 98.0, 1: 99.0, 2: 100.0}}, PUBLISHED)], "published").entries
    expected = stats.t(2).ppf(0.975) * (1 + 1 / 3) ** 0.5
    assert found[0]["reach"] == pytest.approx(expected + 0.05)
    found = section([study("a", {"delta": {0: 99.4, 1: 99.4}}, PUBLISHED)], "published").entries
    assert found[1]["reach"] == pytest.approx(0.35) and found[1]["verdict"] == "inside"


def test_spreads_and_counts_that_were_printed_are_no_results(study):
    printed = f"published: {{delta: {{{TEST}: {{median: 99.7, std: 4.0, seeds: 5}}}}}}\n"
    (found,) = section([study("a", {"delta": {0: 94.0}}, printed)], "published").entries
    assert found["word"] == "median" and found["reach"] == pytest.approx(8.05) and found["verdict"] == "inside"


def test_answers_that_were_asked_otherwise_do_not_stand_side_by_side(study):
    metric, made = "eval/piqa/acc", []
    for name, protocol in (("a", "length 2048"), ("b", "length 512"), ("c", "length 2048")):
        one = study(name, {"delta": {0: 1.0, 1: 2.0}})
        records = [
            replace(record, metrics={metric: 50.0}, made_by={metric: protocol}) for record in one.rows["delta"].records
        ]
        experiment = replace(one.experiment, measure=replace(one.experiment.measure, report=[metric]))
        made.append(study_of_file(name, experiment, records, ()))
    found = section(made, "results")
    assert [summary and summary["median"] for summary in found.entries[0]["summaries"]] == [50.0, None, 50.0]
    assert "eval/piqa/acc: b was asked otherwise than a, and is left out." in found.said


def test_a_number_may_have_been_rounded():
    assert [rounding(value) for value in (99.7, 100, 2.25)] == pytest.approx([0.05, 0.5, 0.005])


def test_what_cannot_be_compared_is_explained(study):
    with pytest.raises(ConfigError, match="a is a study, b is a cell"):
        compare([study("a", {}), trained("b")])
    with pytest.raises(ConfigError, match="has no `published:` values"):
        compare([study("a", {})])
    with pytest.raises(ConfigError, match="name a second cell"):
        compare([trained("a")])


def test_a_comparison_is_markdown_and_json(study):
    found = compare([trained("a|b"), trained("b", {"train.lr": 0.1})])
    assert re.search(r"^\| setting \| a\\\|b \| b \|$", found.markdown(), re.MULTILINE)
    assert [line for line in found.markdown().splitlines() if line.startswith("## ")] == [
        "## Settings", "## Code", "## Results",
    ]  # fmt: skip
    told = json.loads(found.json())
    assert told["settings"]["entries"][0] == {"path": "train.lr", "values": [0.001, 0.1]}
    assert json.loads(compare([study("a", {"delta": {0: 1.0, 1: 2.0}}, PUBLISHED)]).json())["published"]["entries"]
