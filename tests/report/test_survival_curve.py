"""The Kaplan-Meier curve and the interval of its median have the values of a textbook, and cover the true median."""

import numpy as np
import pytest

from hqlt_lab.stats.survival_curve import (
    MedianInterval,
    TimeToGoal,
    binomial_tail,
    estimate_survival,
    interval_rank,
    median_interval,
    median_time,
)

# weeks of remission of leukemia patients, Freireich et al. 1963, as in textbooks; + is censored
TREATED = "6 6 6 6+ 7 9+ 10 10+ 11+ 13 16 17+ 19+ 20+ 22 23 25+ 32+ 32+ 34+ 35+"
PLACEBO = "1 1 2 2 3 4 4 5 5 8 8 8 8 11 11 12 12 15 17 22 23"


def parse_times(text):
    return [TimeToGoal(int(word.rstrip("+")), not word.endswith("+")) for word in text.split()]


def test_the_curve_of_the_textbook_example_with_censored_patients():
    steps = estimate_survival(parse_times(TREATED))
    rows = [(step.time, step.num_observed, step.num_reached, round(step.survival, 4)) for step in steps]
    assert rows == [
        (6, 21, 3, 0.8571),
        (7, 17, 1, 0.8067),
        (10, 15, 1, 0.7529),
        (13, 12, 1, 0.6902),
        (16, 11, 1, 0.6275),
        (22, 7, 1, 0.5378),
        (23, 6, 1, 0.4482),
    ]
    assert median_time(parse_times(TREATED)) == 23


def test_the_median_of_the_textbook_example_without_censoring_and_its_exact_interval():
    times = parse_times(PLACEBO)
    assert median_time(times) == 8
    interval = median_interval(times)  # 6th and 16th of 21 values; P(B <= 5) = 27,896 / 2^21
    assert (interval.low, interval.high) == (4, 12)
    assert interval.confidence == pytest.approx(1 - 2 * 27_896 / 2**21)


def test_a_median_that_is_not_observed_is_not_known():
    assert median_time(parse_times("100 300+ 300+")) is None
    assert median_time(parse_times("100 200 300+ 300+")) == 200  # survival of exactly 1/2
    assert median_time(parse_times("10 20 30 40 50 60+ 60+ 60+ 60+ 60+")) == 50
    assert median_time(parse_times("300+")) is None and estimate_survival([]) == []


@pytest.mark.parametrize("n, rank", [(2, 1), (5, 1), (6, 1), (8, 1), (9, 2), (10, 2), (12, 3), (20, 6)])
def test_ranks_of_the_interval_are_those_of_published_tables(n, rank):
    assert interval_rank(n, 0.05) == rank


def test_few_runs_have_the_range_of_all_with_its_confidence():
    assert median_interval(parse_times("100 200 400")) == MedianInterval(low=100, high=400, confidence=0.75)
    assert median_interval(parse_times("100 200 300 300 500")).confidence == 0.9375
    assert median_interval(parse_times("100 200 300 300 500 500")).confidence == 0.96875


def test_an_end_of_the_interval_may_be_later_than_all_observations():
    assert median_interval(parse_times("100 200 400+")) == MedianInterval(low=100, high=None, confidence=0.75)
    assert median_interval(parse_times("100")) is None
    assert median_interval(parse_times("400+ 400+ 400+")) is None
    assert median_interval(parse_times("1 " + "9+ " * 8)) is None  # begins with the second of nine


def test_there_is_no_interval_if_a_run_was_censored_before_the_last_goal():
    assert median_interval(parse_times(TREATED)) is None
    assert median_interval(parse_times("100 200+ 300")) is None
    assert median_interval(parse_times("100 300+ 300")) is not None


@pytest.mark.parametrize("n", [3, 5, 8, 20])
def test_the_interval_covers_the_true_median_as_often_as_it_says(n):
    """Times are exponential with median 7, rounded up to validations at every unit, and censored after 15."""
    generator, num_covered = np.random.default_rng(n), 0
    for _ in range(2000):
        values = np.ceil(generator.exponential(6.5 / np.log(2), n)).astype(int)
        interval = median_interval([TimeToGoal(min(value, 15), value <= 15) for value in values])
        num_covered += interval is not None and interval.low <= 7 <= (interval.high or np.inf)
    confidence = 1 - 2 * binomial_tail(n, interval_rank(n, 0.05))
    assert num_covered / 2000 >= confidence - 0.02
