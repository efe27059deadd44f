"""Summary statistics against values computed by hand, and their invariances."""

import math
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hqlt_lab.report.stats.summary import count_solved, mean_interval, median_absolute_deviation, summarize_seeds

SEEDS = st.lists(st.floats(-100, 100).map(lambda x: round(x, 3)), min_size=2, max_size=9)


def test_summary_of_three_seeds_equals_the_values_computed_by_hand():
    summary = summarize_seeds([90.0, 100.0, 98.0], "maximize", threshold=98.0)
    assert (summary.n, summary.median, summary.mad, summary.mean, summary.best) == (3, 98.0, 2.0, 96.0, 100.0)
    # s / sqrt(3) = sqrt((36 + 16 + 4) / 2 / 3) = 3.0550505, and t_{0.975, 2} = 4.302653
    assert (summary.low, summary.high) == pytest.approx((96 - 13.144822, 96 + 13.144822), abs=1e-5)
    assert summary.solved == (2, 3)


def test_two_seeds_have_a_wide_interval():
    low, high = mean_interval([1.0, 3.0])  # s / sqrt(2) = 1, t_{0.975, 1} = 12.7062
    assert (low, high) == pytest.approx((2 - 12.7062047, 2 + 12.7062047))


def test_one_seed_has_no_interval_and_no_spread():
    summary = summarize_seeds([7.0], "maximize")
    assert (summary.median, summary.mad, summary.mean, summary.low, summary.high, summary.best) == (
        7.0,
        0.0,
        7.0,
        None,
        None,
        7.0,
    )


def test_no_seed_has_no_summary():
    assert summarize_seeds([], "maximize", threshold=1.0, num_lost=3) is None


def test_the_median_absolute_deviation_is_not_scaled():
    assert median_absolute_deviation([1.0, 2.0, 3.0, 4.0, 100.0]) == 1.0


def test_with_minimize_smaller_values_are_better():
    summary = summarize_seeds([0.1, 0.3], "minimize", threshold=0.1)
    assert summary.best == 0.1 and summary.solved == (1, 2)
    assert count_solved([0.1, 0.3], 0.1, "maximize") == 2


def test_a_seed_without_a_value_counts_as_not_solved():
    assert summarize_seeds([100.0, 100.0], "maximize", threshold=99.0, num_lost=1).solved == (2, 3)


@settings(deadline=None)  # importing scipy takes longer
@given(SEEDS)
def test_the_interval_equals_that_of_scipy(values):
    if len(set(values)) > 1:
        standard_error = stats.sem(values)
        expected = stats.t.interval(0.95, len(values) - 1, loc=sum(values) / len(values), scale=standard_error)
        assert mean_interval(values) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(SEEDS, st.integers(-50, 50))
def test_a_shift_moves_the_location_and_keeps_the_spread(values, shift):
    before, after = (
        summarize_seeds(values, "maximize"),
        summarize_seeds([value + shift for value in values], "maximize"),
    )
    assert after.mad == pytest.approx(before.mad, abs=1e-9)
    for name in ("median", "mean", "low", "high", "best"):
        assert getattr(after, name) == pytest.approx(getattr(before, name) + shift, abs=1e-9)


@settings(deadline=None)  # importing scipy takes longer
@given(SEEDS)
def test_flipping_the_sign_flips_the_direction(values):
    up, down = summarize_seeds(values, "maximize"), summarize_seeds([-value for value in values], "minimize")
    assert math.isclose(up.best, -down.best) and up.low == pytest.approx(-down.high, abs=1e-9)


def test_importing_the_report_loads_no_heavy_library():
    script = (
        "import sys; import hqlt_lab.report.study_report, hqlt_lab.report.render.cells_dataframe; print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "scipy", "pandas", "optuna", "mlflow", "rich"} & set(loaded)
