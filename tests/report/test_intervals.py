"""Intervals against numbers computed by hand, and against many studies in which nothing is the case."""

import math

import numpy as np
import pytest
from scipy.stats import t

from hqlt_lab.report.intervals import Estimate, bootstrap, estimate, finest_step, holm, step_of


def test_three_seeds_by_hand():
    # mean 5, s = 1, t(0.975, 2) = 4.302653: 5 -+ 4.302653 / sqrt(3)
    found = estimate([4.0, 5.0, 6.0])
    assert (found.n, found.mean, found.spread) == (3, 5.0, 1.0)
    assert found.interval() == pytest.approx((5 - 2.484138, 5 + 2.484138), abs=1e-5)
    # t = 5 sqrt(3) = 8.660254 with 2 degrees of freedom: p = 1 - t / sqrt(t^2 + 2) = 0.013072
    assert found.p == pytest.approx(1 - math.sqrt(75) / math.sqrt(77), abs=1e-9)


def test_the_interval_excludes_zero_exactly_where_p_is_below_alpha():
    found = Estimate(4, 1.0, 0.6)
    p = found.p
    for alpha, excluded in ((p * 1.0001, True), (p * 0.9999, False)):
        low, high = found.interval(alpha)
        assert (low > 0) is excluded and high > 0


def test_one_seed_has_neither_interval_nor_p():
    found = estimate([5.0])
    assert found.interval() is None and found.p is None and found.seeds_needed(0.05) is None


def test_a_spread_of_zero_is_that_of_rounding():
    assert estimate([0.4, 0.4], step=0.4).spread == pytest.approx(0.4 / math.sqrt(6))
    assert estimate([0.4, 0.4], step=0.4).interval()[0] < 0, "two equal steps may be one step of luck"
    assert estimate([0.0, 0.0]).interval() == (0.0, 0.0)


def test_the_finest_step_does_not_see_rounding_of_floats():
    assert finest_step([0.1 + 0.2, 0.3, 0.5]) == pytest.approx(0.2)
    assert finest_step([2.0, 2.0]) == 0.0 == finest_step([])


def test_where_all_is_the_same_the_step_is_that_of_one_example():
    assert step_of("test/accuracy", 3.0, [100.0, 100.0]) == 3.0
    assert step_of("test/accuracy", 3.0, [100.0, 99.0]) == 1.0
    assert step_of("test/loss", 3.0, [2.0, 2.0]) == 0.0


def test_holm_by_hand():
    # 0.01 <= 0.05 / 3, 0.02 <= 0.05 / 2, 0.03 <= 0.05: all are rejected, each at its own level
    assert holm([0.03, 0.01, 0.02]) == pytest.approx([0.05, 0.05 / 3, 0.05 / 2])
    # 0.03 > 0.05 / 2 fails, and whatever comes after it is held against the same level
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.05 / 2, 0.05 / 3, 0.05 / 2])
    # what has no p is no comparison
    assert holm([None, 0.04]) == pytest.approx([0.05, 0.05])


def test_holm_rejects_what_adjusted_chances_reject():
    # Holm 1979's step-down in its other form: adjusted p_(j) = max over i <= j of (m - i + 1) p_(i)
    chances = [0.001, 0.2, 0.013, 0.049, 0.021, 0.012]
    ordered, worst, rejected = sorted(chances), 0.0, set()
    for rank, p in enumerate(ordered):
        worst = max(worst, (len(chances) - rank) * p)
        rejected |= {p} if worst <= 0.05 else set()
    assert {p for p, level in zip(chances, holm(chances), strict=True) if p <= level} == rejected == {0.001}


def test_the_seeds_needed_have_the_power_that_is_promised():
    found = Estimate(3, 1.0, 1.5)
    n = found.seeds_needed(0.05)
    draws = np.random.default_rng(0).normal(1.0, 1.5, (20_000, n))
    decided = np.mean(np.abs(draws.mean(1)) > np.abs(t.ppf(0.975, n - 1) * draws.std(1, ddof=1) / math.sqrt(n)))
    assert 0.79 < decided < 0.84, (n, decided)
    assert found.power(n - 1, 0.05) < 0.8 <= found.power(n, 0.05)


def test_a_clear_difference_needs_the_least_and_none_needs_no_number():
    assert Estimate(2, 95.0, 1.0).seeds_needed(0.05) in (2, 3)
    assert Estimate(2, 95.0, 1.0).seeds_needed(0.05, least=5) == 5
    assert Estimate(5, 0.0, 1.0).seeds_needed(0.05) is None
    assert Estimate(5, 1e-3, 1.0).seeds_needed(0.05) is None, "more than a thousand"


def test_the_bootstrap_begins_with_ten_seeds_and_is_the_same_every_time():
    values = [float(value**2) for value in range(10)]
    assert bootstrap(values[:9]) is None
    low, high = bootstrap(values)
    assert (low, high) == bootstrap(values)
    assert low < sum(values) / 10 < high
    assert high - sum(values) / 10 > sum(values) / 10 - low, "it leans where the seeds lean"
    assert bootstrap([3.0] * 10) == (3.0, 3.0)
