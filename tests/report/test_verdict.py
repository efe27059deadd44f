"""What the sentence about the baseline says, whatever the comparisons are."""

from hqlt_lab.experiment.settings import MeasureConfig
from hqlt_lab.report.differences import Difference
from hqlt_lab.report.rows import Row, reported
from hqlt_lab.report.verdict import verdict

MEASURE = MeasureConfig()
METRIC = reported(MEASURE)[0]


def said(**found):
    rows = [Row(title="base"), *(Row(title=title, differences={METRIC: one}) for title, one in found.items())]
    return verdict(rows, MEASURE)


def against(word, mean=5.0, baseline="base", n=3, needed=None):
    reach = {} if word is None else {"low": mean - 1, "high": mean + 1}
    return Difference(baseline=baseline, n=n, mean=mean, verdict=word, needed=needed, **reach)


def test_each_comparison_is_named():
    assert said(a=against("better"), b=against("worse", -5.0), c=against("undecided", 0.3, needed=40)) == (
        "Against base, in the mean of 3 paired seeds: a is better: +5.0 [+4.0, +6.0]; "
        "b is worse: -5.0 [-6.0, -4.0]; c is undecided at +0.3 [-0.7, +1.3] (about 40 seeds would decide)."
    )


def test_several_baselines_are_not_listed():
    assert said(a=against("better"), b=against("worse", -5.0, "other", 2)).startswith(
        "Against their baselines, in the mean of 2 to 3 paired seeds: a is"
    )


def test_many_comparisons_are_counted():
    found = {f"a{number}": against("undecided") for number in range(6)} | {
        "b": against("better"),
        "c": against("worse"),
    }
    assert said(**found) == (
        "Of 8 comparisons with a baseline, paired by seed: 1 better (b), 1 worse (c), 6 undecided."
    )


def test_one_seed_is_no_verdict():
    assert said(a=against(None, n=1)) == "One seed gives no verdict: another seed may turn the order around."
    assert said(a=against("better"), b=against(None, n=1)).endswith(" b: one seed gives no verdict.")


def test_nothing_compared_is_nothing_said():
    assert said() == ""
