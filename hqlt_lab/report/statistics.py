"""Several seeds in a few numbers.

MAD = median |x_i - median(x)|                 not scaled, as the paper prints it
low, high: a 95 % interval of the mean         over seeds (`intervals`); of a single seed, over the test's examples
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hqlt_lab.report.intervals import bootstrap, estimate

Direction = Literal["maximize", "minimize"]
NORMAL = 1.959964  # 97.5 % of a normal distribution lie below


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
    values: Sequence[float],
    direction: Direction,
    threshold: float | None = None,
    lost: int = 0,
    error: float | None = None,
    resample: bool = False,
) -> Summary | None:
    """All of it, or None without values.  Seeds that were lost gave no value, and solved nothing.

    `error` is the standard error of a single seed over its test examples; `resample` asks for the bootstrap.
    """
    if not values:
        return None
    reach = interval(values, resample)
    over: Literal["seeds", "examples"] = "seeds"
    if len(values) == 1 and error is not None:
        reach, over = (values[0] - NORMAL * error, values[0] + NORMAL * error), "examples"
    low, high = reach or (None, None)
    return Summary(
        n=len(values),
        median=statistics.median(values),
        mad=mad(values),
        mean=statistics.fmean(values),
        low=low,
        high=high,
        over=over,
        best=best(values, direction),
        solved=None if threshold is None else (solved_of(values, threshold, direction), len(values) + lost),
    )


def mad(values: Sequence[float]) -> float:
    """How far the middle seed is from the median."""
    middle = statistics.median(values)
    return statistics.median(abs(value - middle) for value in values)


def interval(values: Sequence[float], resample: bool = False) -> tuple[float, float] | None:
    """Where the mean lies with a confidence of 95 %; by the bootstrap if that is asked for and seeds are enough."""
    return (bootstrap(values) if resample else None) or estimate(values).interval()


def best(values: Sequence[float], direction: Direction) -> float:
    return max(values) if direction == "maximize" else min(values)


def solved_of(values: Sequence[float], threshold: float, direction: Direction) -> int:
    """How many values reach the threshold; one that just reaches it does."""
    return sum(value >= threshold if direction == "maximize" else value <= threshold for value in values)
