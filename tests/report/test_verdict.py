"""The list of comparisons with the baseline, and verdicts as text."""

import pytest

from hqlt_lab.experiment.arm_title import ArmTitle
from hqlt_lab.experiment.run_settings import MeasureConfig
from hqlt_lab.report.arm_rows import Row, reported_metrics
from hqlt_lab.report.wording.answer import compose_comparisons
from hqlt_lab.report.wording.verdicts import format_verdict
from hqlt_lab.stats.baseline_differences import Difference

MEASURE = MeasureConfig()
METRIC = reported_metrics(MEASURE)[0]


def compare(differences):
    rows = [Row(title=title, differences={METRIC: each}) for title, each in differences.items()]
    return compose_comparisons([Row(title=ArmTitle("base")), *rows], MEASURE)


def compare_arms(**differences):
    return compare({ArmTitle(name): each for name, each in differences.items()})


def difference(verdict, mean=5.0, baseline="base", n=3, levels=None, **options):
    interval = {} if verdict is None else {"low": mean - 1, "high": mean + 1}
    return Difference(baseline=ArmTitle(baseline, levels), n=n, mean=mean, verdict=verdict, **interval, **options)


@pytest.mark.parametrize(
    "verdict, options, text",
    [
        ("better", {}, "significantly better"),
        ("worse", {}, "significantly worse"),
        ("not_significant", {}, "not significant"),
        ("not_significant", {"seeds_needed": 12}, "not significant (needs about 12 seeds)"),
        ("not_significant", {"reason": "below the margin"}, "not significant (below the margin)"),
        (None, {}, ""),
    ],
)
def test_verdict_as_text(verdict, options, text):
    assert format_verdict(difference(verdict, **options)) == text


def test_each_comparison_is_one_item():
    heading, items = compare_arms(
        a=difference("better"), b=difference("worse", -5.0), c=difference("not_significant", 0.3, seeds_needed=40)
    )
    assert heading == "Compared with the baseline base (paired by seed, 95 % CI, Holm-corrected for 3 comparisons):"
    assert items == [
        "a: significantly better, +5.0 [+4.0, +6.0]",
        "b: significantly worse, -5.0 [-6.0, -4.0]",
        "c: not significant (needs about 40 seeds), +0.3 [-0.7, +1.3]",
    ]


def test_a_single_comparison_is_not_corrected():
    heading, _ = compare_arms(a=difference("better"))
    assert heading == "Compared with the baseline base (paired by seed, 95 % CI):"


def test_several_baselines_are_named_in_the_items_without_shared_levels():
    levels = {"model.mixer": "sum"}
    heading, items = compare(
        {ArmTitle("a"): difference("better"), ArmTitle("a", levels): difference("worse", -5.0, levels=levels)}
    )
    assert heading.startswith("Compared with their baselines (")
    assert items == [
        "a vs. base: significantly better, +5.0 [+4.0, +6.0]",
        "a (mixer=sum) vs. base: significantly worse, -5.0 [-6.0, -4.0]",
    ]


def grid_levels(mixer, window):
    return {"model.mixer": mixer, "model.timing.window": window}


def test_the_heading_of_a_grid_names_the_baseline_and_the_axes():
    levels = [grid_levels("sum", 4), grid_levels("vector", 4)]
    heading, items = compare({ArmTitle("a", each): difference("better", levels=each) for each in levels})
    assert heading.startswith("Compared with base with the same mixer and window (paired by seed, ")
    assert items[0] == "a (mixer=sum, window=4): significantly better, +5.0 [+4.0, +6.0]"


def test_many_comparisons_of_a_grid_are_summarized_by_arm():
    grid = [grid_levels(mixer, window) for mixer in ("sum", "vector") for window in (4, 8)]
    differences = {}
    for number, levels in enumerate(grid):
        differences[ArmTitle("a", levels)] = difference("worse", -5.0 - number, levels=levels)
        verdict, mean = ("better", 5.0) if number < 1 else ("not_significant", 0.5 * number)
        differences[ArmTitle("b", levels)] = difference(verdict, mean, levels=levels)
    _, items = compare(differences)
    assert items == [
        "a: significantly worse in 4 of 4 combinations (-8.0 to -5.0)",
        "b: significantly better in 1 of 4 combinations (+5.0), not significant in 3 (+0.5 to +1.5)",
    ]


def test_many_comparisons_are_counted_by_verdict():
    differences = {f"a{number}": difference("not_significant") for number in range(6)} | {
        "b": difference("better"),
        "c": difference("worse"),
    }
    _, items = compare_arms(**differences)
    assert items == ["significantly better: 1 (b)", "significantly worse: 1 (c)", "not significant: 6"]


def test_one_seed_is_not_tested():
    heading, items = compare_arms(a=difference(None, n=1))
    assert "only one seed" in heading and items == []
    _, items = compare_arms(a=difference("better"), b=difference(None, n=1))
    assert items[1:] == ["b: not tested (only one seed)"]


def test_without_comparisons_there_is_no_list():
    assert compare_arms() == ("", [])
