"""Kaplan-Meier estimate of how many runs have not reached a goal yet, and the median of the time to the goal.

    S(t) = product over all t_i <= t of (1 - d_i / n_i)     d_i runs reach the goal at t_i, n_i were observed until then
    median = smallest t_i with S(t_i) <= 1/2                None if S stays above 1/2

A run that was observed until t and did not reach its goal is censored at t. It counts in n_i for all t_i <= t.

The interval of the median is exact for any distribution. Each run is below the true median with probability 1/2, so

    P(x_(r) <= median <= x_(n+1-r)) >= 1 - 2 P(B < r),      B binomial with n trials and probability 1/2

for the sorted times x_(1), ..., x_(n). The largest r with a confidence of at least 95 % is used. With fewer than 6 runs
there is none: the interval is then that from the fastest to the slowest run, with its lower confidence. Censored times
sort last, so the interval requires that no run was censored before the last one that reached the goal.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hqlt_lab.stats.intervals import ALPHA


@dataclass(frozen=True)
class TimeToGoal:
    """The time of one run until its goal."""

    time: int
    is_reached: bool  # False: the run was observed until this time and did not reach its goal


@dataclass(frozen=True, kw_only=True)
class SurvivalStep:
    """A time at which runs reach their goal."""

    time: int
    num_observed: int  # runs that had not reached the goal before, and were observed until this time
    num_reached: int
    survival: float  # estimated share of runs that have not reached the goal after this time


@dataclass(frozen=True, kw_only=True)
class MedianInterval:
    """Interval of the median time to the goal."""

    low: int
    high: int | None  # None: later than all observations
    confidence: float


def estimate_survival(times: Sequence[TimeToGoal]) -> list[SurvivalStep]:
    """Return the steps of the Kaplan-Meier curve, which is 1 before the first."""
    steps: list[SurvivalStep] = []
    survival = 1.0
    for time in sorted({each.time for each in times if each.is_reached}):
        num_observed = sum(each.time >= time for each in times)
        num_reached = sum(each.is_reached and each.time == time for each in times)
        survival *= 1 - num_reached / num_observed
        steps.append(SurvivalStep(time=time, num_observed=num_observed, num_reached=num_reached, survival=survival))
    return steps


def median_time(times: Sequence[TimeToGoal]) -> int | None:
    """Return the time after which at most half of the runs have not reached the goal; None if it is not observed."""
    tolerance = 1e-9  # the product of several factors may be slightly above 1/2
    return next((step.time for step in estimate_survival(times) if step.survival <= 0.5 + tolerance), None)


def median_interval(times: Sequence[TimeToGoal], alpha: float = ALPHA) -> MedianInterval | None:
    """Return the exact interval of the median; None if it has no end or is not known.

    It has no end with a single run, or if too few runs reach the goal. It is not known if a run was censored before the
    last one that reached the goal.
    """
    reached = sorted(each.time for each in times if each.is_reached)
    first_censored = min((each.time for each in times if not each.is_reached), default=math.inf)
    rank = interval_rank(len(times), alpha)
    if len(times) < 2 or len(reached) < rank or first_censored < reached[-1]:
        return None
    high_rank = len(times) + 1 - rank
    return MedianInterval(
        low=reached[rank - 1],
        high=reached[high_rank - 1] if high_rank <= len(reached) else None,
        confidence=1 - 2 * binomial_tail(len(times), rank),
    )


def interval_rank(n: int, alpha: float) -> int:
    """Return the largest rank r from 1 on whose interval has a confidence of at least 1 - alpha; 1 if none has."""
    return max((rank for rank in range(1, n // 2 + 1) if 2 * binomial_tail(n, rank) <= alpha), default=1)


def binomial_tail(n: int, rank: int) -> float:
    """Return the probability that fewer than `rank` of n fair coins show heads."""
    return sum(math.comb(n, count) for count in range(rank)) / 2**n
