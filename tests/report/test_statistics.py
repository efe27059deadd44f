"""The numbers, by hand and by properties."""

import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hqlt_lab.report.statistics import interval, mad, solved_of, summarise

SEEDS = st.lists(st.floats(-100, 100).map(lambda x: round(x, 3)), min_size=2, max_size=9)


def test_three_seeds_by_hand():
    made = summarise([90.0, 100.0, 98.0], "maximize", threshold=98.0)
    assert (made.n, made.median, made.mad, made.mean, made.best) == (3, 98.0, 2.0, 96.0, 100.0)
    # s / sqrt(3) = sqrt((36 + 16 + 4) / 2 / 3) = 3.0550505, and t_{0.975, 2} = 4.302653
    assert (made.low, made.high) == pytest.approx((96 - 13.144822, 96 + 13.144822), abs=1e-5)
    assert made.solved == (2, 3)


def test_two_seeds_have_a_wide_interval():
    low, high = interval([1.0, 3.0])  # s / sqrt(2) = 1, t_{0.975, 1} = 12.7062
    assert (low, high) == pytest.approx((2 - 12.7062047, 2 + 12.7062047))


def test_one_seed_has_no_interval_and_no_spread():
    made = summarise([7.0], "maximize")
    assert (made.median, made.mad, made.mean, made.low, made.high, made.best) == (7.0, 0.0, 7.0, None, None, 7.0)


def test_no_seed_has_no_summary():
    assert summarise([], "maximize", threshold=1.0, lost=3) is None


def test_the_deviation_is_not_scaled():
    assert mad([1.0, 2.0, 3.0, 4.0, 100.0]) == 1.0


def test_smaller_may_be_better():
    made = summarise([0.1, 0.3], "minimize", threshold=0.1)
    assert made.best == 0.1 and made.solved == (1, 2)
    assert solved_of([0.1, 0.3], 0.1, "maximize") == 2


def test_a_lost_seed_solved_nothing():
    assert summarise([100.0, 100.0], "maximize", threshold=99.0, lost=1).solved == (2, 3)


@given(SEEDS)
def test_the_interval_is_that_of_scipy(values):
    if len(set(values)) > 1:
        spread = stats.sem(values)
        theirs = stats.t.interval(0.95, len(values) - 1, loc=sum(values) / len(values), scale=spread)
        assert interval(values) == pytest.approx(theirs, rel=1e-9, abs=1e-9)


@given(SEEDS, st.integers(-50, 50))
def test_a_shift_moves_the_places_and_keeps_the_spread(values, shift):
    before, after = summarise(values, "maximize"), summarise([value + shift for value in values], "maximize")
    assert after.mad == pytest.approx(before.mad, abs=1e-9)
    for name in ("median", "mean", "low", "high", "best"):
        assert getattr(after, name) == pytest.approx(getattr(before, name) + shift, abs=1e-9)


@given(SEEDS)
def test_turning_the_sign_turns_the_direction(values):
    up, down = summarise(values, "maximize"), summarise([-value for value in values], "minimize")
    assert math.isclose(up.best, -down.best) and up.low == pytest.approx(-down.high, abs=1e-9)


def test_the_room_loads_nothing_heavy():
    script = "import sys; import hqlt_lab.report.report, hqlt_lab.report.frame; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "scipy", "pandas", "optuna", "mlflow", "rich"} & set(loaded)
