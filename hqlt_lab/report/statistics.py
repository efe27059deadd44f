"""Several seeds in a few numbers.

MAD = median |x_i - median(x)|                          not scaled, as the paper prints it
low, high = mean -+ t_{0.975, n-1} s / sqrt(n)          s with n - 1; one seed has no interval
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Direction = Literal["maximize", "minimize"]


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What several seeds say about one metric."""

    n: int
    median: float
    mad: float
    mean: float
    low: float | None  # a 95 % interval of the mean; None: nothing is known of its spread
    high: float | None
    over: Literal["seeds", "examples"] = "seeds"  # what that interval generalises over
    best: float
    solved: tuple[int, int] | None = None  # how many of how many; None: nothing is called solved


def summarise(
    values: Sequence[float], direction: Direction, threshold: float | None = None, lost: int = 0
) -> Summary | None:
    """All of it, or None without values.  Seeds that were lost gave no value, and solved nothing."""
    if not values:
        return None
    low, high = interval(values) or (None, None)
    solved = None if threshold is None else (solved_of(values, threshold, direction), len(values) + lost)
    return Summary(
        n=len(values),
        median=statistics.median(values),
        mad=mad(values),
        mean=statistics.fmean(values),
        low=low,
        high=high,
        best=best(values, direction),
        solved=solved,
    )


def mad(values: Sequence[float]) -> float:
    """How far the middle seed is from the median."""
    middle = statistics.median(values)
    return statistics.median(abs(value - middle) for value in values)


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Where the mean lies with a confidence of 95 %, if seeds are drawn from a normal distribution."""
    if len(values) < 2:
        return None
    from scipy.special import stdtrit  # the quantile of Student's t: scipy.stats would load three times as long

    mean = statistics.fmean(values)
    reach = float(stdtrit(len(values) - 1, 0.975)) * statistics.stdev(values) / math.sqrt(len(values))
    return mean - reach, mean + reach


def best(values: Sequence[float], direction: Direction) -> float:
    return max(values) if direction == "maximize" else min(values)


def solved_of(values: Sequence[float], threshold: float, direction: Direction) -> int:
    """How many values reach the threshold; one that just reaches it does."""
    return sum(value >= threshold if direction == "maximize" else value <= threshold for value in values)
