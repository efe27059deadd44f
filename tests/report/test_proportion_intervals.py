"""Exact intervals of percentages over test examples, and intervals clipped to possible values."""

import math

import pytest
from scipy import stats

import hqlt_lab as lab
from hqlt_lab.report.arm_rows import build_rows
from hqlt_lab.report.stats.summary import summarize_seeds
from hqlt_lab.stats.proportion_intervals import PercentRange, percent_range

METRIC = "test/normalized_accuracy"


@pytest.mark.parametrize("right", [0, 1, 13, 128, 255, 256])
def test_the_interval_of_one_seed_is_that_of_clopper_and_pearson(right):
    expected = stats.binomtest(right, 256).proportion_ci(0.95, "exact")
    p = right / 256
    standard_error = 100 * math.sqrt(p * (1 - p) / 255)  # as `scoring.standard_error` estimates it
    interval = PercentRange(0.0, examples=256).exact_interval(100 * p, standard_error)
    assert interval == pytest.approx((100 * expected.low, 100 * expected.high))
    # normalized with a chance level of 50: an accuracy of 0 is -100
    normalized = PercentRange(-100.0, examples=256).exact_interval(200 * p - 100, 2 * standard_error)
    assert normalized == pytest.approx((200 * expected.low - 100, 200 * expected.high - 100))


def test_the_interval_contains_the_true_accuracy_in_95_percent_of_tests():
    for true in (0.9, 0.99, 0.999):
        distribution = stats.binom(64, true)
        intervals = {
            right: PercentRange(0.0, examples=64).exact_interval(
                100 * right / 64, 100 * math.sqrt(right * (64 - right) / 63) / 64
            )
            for right in range(65)
        }
        covered = sum(distribution.pmf(right) for right, (low, high) in intervals.items() if low <= 100 * true <= high)
        assert covered >= 0.95


def test_the_standard_error_gives_the_number_of_examples_where_it_is_not_known():
    low, high = PercentRange(0.0).exact_interval(50.0, 5.0)  # 101 examples
    assert (low, high) == pytest.approx(100 * stats.beta.ppf([0.025, 0.975], [50.5, 51.5], [51.5, 50.5]))
    assert PercentRange(0.0).exact_interval(100.0, 0.0) is None
    assert PercentRange(None, examples=64).exact_interval(100.0, 0.0) is None


def test_the_range_of_a_metric_follows_from_its_task():
    parity, recall = lab.build("task", {"name": "parity", "eval_size": 64}), lab.build("task", "associative_recall")
    assert percent_range("test/accuracy", parity) == PercentRange(0.0, examples=64)
    assert percent_range(METRIC, parity) == PercentRange(-100.0, examples=64)
    assert percent_range(METRIC, recall).low == pytest.approx(-100 / 63)
    assert percent_range(METRIC, None) == PercentRange(None)
    assert percent_range("test/accuracy/length_40_79", parity) == PercentRange(0.0)
    assert percent_range("eval/piqa/acc", parity) == PercentRange(0.0)
    assert percent_range("test/loss", parity) is None


def test_one_seed_at_100_percent_has_an_interval_of_some_width(make_experiment, make_record):
    rows = build_rows(make_experiment("seeds: 1\n"), [make_record("delta", 0, 100.0, errors={METRIC: 0.0})])
    summary = rows[0].summaries[METRIC]
    low = stats.binomtest(8192, 8192).proportion_ci(0.95, "exact").low
    assert (summary.low, summary.high) == pytest.approx((200 * low - 100, 100.0)) and summary.low < 100


def test_intervals_over_seeds_are_clipped_to_possible_values(make_experiment, make_record):
    values = {"delta": [100.0, 100.0, 10.0], "linear": [-90.0, 20.0, -95.0]}
    records = [make_record(arm, seed, value) for arm, seeds in values.items() for seed, value in enumerate(seeds)]
    delta, linear, _ = build_rows(make_experiment("seeds: 3\n"), records)
    assert delta.summaries[METRIC].high == 100 and linear.summaries[METRIC].low == -100
    assert linear.differences[METRIC].low == -200 and linear.differences[METRIC].high < 200
    unclipped = summarize_seeds(values["delta"], "maximize")
    assert unclipped.high > 100 and delta.summaries[METRIC].low == pytest.approx(unclipped.low)


def test_two_seeds_that_agree_have_an_interval_of_the_width_of_rounding(make_experiment, make_record):
    records = [make_record("delta", seed, 60.0) for seed in range(2)]
    summary = build_rows(make_experiment("seeds: 2\n"), records)[0].summaries[METRIC]
    half_width = stats.t.ppf(0.975, 1) * 200 / 8192 / math.sqrt(6) / math.sqrt(2)
    assert (summary.low, summary.high) == pytest.approx((60 - half_width, 60 + half_width))
