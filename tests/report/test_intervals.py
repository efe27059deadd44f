"""Intervals, Holm's correction and power, against values computed by hand and by simulation."""

import math

import numpy as np
import pytest
from scipy.stats import t

from hqlt_lab.report.stats.summary import summarize_seeds
from hqlt_lab.stats.intervals import (
    MeanEstimate,
    bootstrap_interval,
    estimate_mean,
    holm_levels,
)
from hqlt_lab.stats.metric_scale import metric_resolution, smallest_gap


def test_estimate_of_three_seeds_equals_the_values_computed_by_hand():
    # mean 5, s = 1, t(0.975, 2) = 4.302653: 5 -+ 4.302653 / sqrt(3)
    estimate = estimate_mean([4.0, 5.0, 6.0])
    assert (estimate.n, estimate.mean, estimate.std) == (3, 5.0, 1.0)
    assert estimate.confidence_interval() == pytest.approx((5 - 2.484138, 5 + 2.484138), abs=1e-5)
    # t = 5 sqrt(3) = 8.660254 with 2 degrees of freedom: p = 1 - t / sqrt(t^2 + 2) = 0.013072
    assert estimate.p_value == pytest.approx(1 - math.sqrt(75) / math.sqrt(77), abs=1e-9)


def test_the_interval_excludes_zero_exactly_where_p_is_below_alpha():
    estimate = MeanEstimate(4, 1.0, 0.6)
    p = estimate.p_value
    for alpha, excluded in ((p * 1.0001, True), (p * 0.9999, False)):
        low, high = estimate.confidence_interval(alpha)
        assert (low > 0) is excluded and high > 0


def test_one_seed_has_neither_interval_nor_p_value():
    estimate = estimate_mean([5.0])
    assert estimate.confidence_interval() is None and estimate.p_value is None and estimate.required_seeds(0.05) is None


def test_a_spread_of_zero_is_replaced_by_that_of_rounding():
    assert estimate_mean([0.4, 0.4], resolution=0.4).std == pytest.approx(0.4 / math.sqrt(6))
    assert estimate_mean([0.4, 0.4], resolution=0.4).confidence_interval()[0] < 0, (
        "two equal values may differ by up to the resolution"
    )
    assert estimate_mean([0.0, 0.0]).confidence_interval() == (0.0, 0.0)


def test_the_smallest_gap_ignores_floating_point_error():
    assert smallest_gap([0.1 + 0.2, 0.3, 0.5]) == pytest.approx(0.2)
    assert smallest_gap([2.0, 2.0]) == 0.0 == smallest_gap([])


def test_with_equal_values_the_resolution_is_that_of_one_example():
    assert metric_resolution("test/accuracy", 3.0, [100.0, 100.0]) == 3.0
    assert metric_resolution("test/accuracy", 3.0, [100.0, 99.0]) == 1.0
    assert metric_resolution("test/loss", 3.0, [2.0, 2.0]) == 0.0


def test_holm_levels_equal_those_computed_by_hand():
    # 0.01 <= 0.05 / 3, 0.02 <= 0.05 / 2, 0.03 <= 0.05: all are rejected, each at its own level
    assert holm_levels([0.03, 0.01, 0.02]) == pytest.approx([0.05, 0.05 / 3, 0.05 / 2])
    # 0.03 > 0.05 / 2 fails, and all larger p-values are compared with the same level
    assert holm_levels([0.04, 0.01, 0.03]) == pytest.approx([0.05 / 2, 0.05 / 3, 0.05 / 2])
    # entries without p are not counted as comparisons
    assert holm_levels([None, 0.04]) == pytest.approx([0.05, 0.05])


def test_holm_levels_reject_the_same_as_adjusted_p_values():
    # Holm 1979's step-down in its other form: adjusted p_(j) = max over i <= j of (m - i + 1) p_(i)
    p_values = [0.001, 0.2, 0.013, 0.049, 0.021, 0.012]
    ordered, worst, rejected = sorted(p_values), 0.0, set()
    for rank, p in enumerate(ordered):
        worst = max(worst, (len(p_values) - rank) * p)
        rejected |= {p} if worst <= 0.05 else set()
    assert {p for p, level in zip(p_values, holm_levels(p_values), strict=True) if p <= level} == rejected == {0.001}


def test_the_required_seeds_have_the_target_power():
    estimate = MeanEstimate(3, 1.0, 1.5)
    n = estimate.required_seeds(0.05)
    draws = np.random.default_rng(0).normal(1.0, 1.5, (20_000, n))
    decided = np.mean(np.abs(draws.mean(1)) > np.abs(t.ppf(0.975, n - 1) * draws.std(1, ddof=1) / math.sqrt(n)))
    assert 0.79 < decided < 0.84, (n, decided)
    assert estimate.compute_power(n - 1, 0.05) < 0.8 <= estimate.compute_power(n, 0.05)


def test_a_clear_difference_needs_the_minimum_and_no_difference_has_no_required_number():
    assert MeanEstimate(2, 95.0, 1.0).required_seeds(0.05) in (2, 3)
    assert MeanEstimate(2, 95.0, 1.0).required_seeds(0.05, min_seeds=5) == 5
    assert MeanEstimate(5, 0.0, 1.0).required_seeds(0.05) is None
    assert MeanEstimate(5, 1e-3, 1.0).required_seeds(0.05) is None, "more than MAX_SEEDS"


def test_the_bootstrap_needs_ten_seeds_and_is_deterministic():
    values = [float(value**2) for value in range(10)]
    assert bootstrap_interval(values[:9]) is None
    low, high = bootstrap_interval(values)
    assert (low, high) == bootstrap_interval(values)
    assert low < sum(values) / 10 < high
    assert high - sum(values) / 10 > sum(values) / 10 - low, "the interval is skewed like the values"
    assert bootstrap_interval([3.0] * 10) == (3.0, 3.0)


def test_the_bootstrap_of_equal_seeds_has_the_width_of_rounding():
    half_width = t.ppf(0.975, 11) * 0.4 / math.sqrt(6) / math.sqrt(12)
    assert bootstrap_interval([99.0] * 12, resolution=0.4) == pytest.approx((99 - half_width, 99 + half_width))
    summary = summarize_seeds([100.0] * 12, "maximize", use_bootstrap=True, resolution=0.4)
    assert summary.low == pytest.approx(100 - half_width)
    values = [float(value**2) for value in range(10)]
    assert bootstrap_interval(values, resolution=0.4) == bootstrap_interval(values)
