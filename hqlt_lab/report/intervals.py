"""Where a mean lies: intervals over a few seeds, and what many of them at once are worth.

    mean -+ t_{1 - alpha/2, n-1} s / sqrt(n)            s with n - 1; seeds as draws of a normal distribution
    Holm: of m comparisons the j-th smallest p is held against alpha / (m - j + 1), until one fails

An interval at the level that Holm's method gives its comparison excludes 0 exactly where the method rejects, so that
of all "better" and "worse" by one metric, the chance that any is false is at most alpha.

An accuracy is counted on a fixed set and has steps, and a spread of 0 over two or three seeds may only mean that all
fell on one step.  So s is at least that of rounding two numbers to that step, step / sqrt(6).
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hqlt_lab.report.words import is_percentage

ALPHA = 0.05
BOOTSTRAP_FROM = 10  # seeds; resampling fewer makes intervals too short
RESAMPLES = 9999
POWER = 0.8  # how probable a decision is that is called probable
MOST_SEEDS = 1000


@dataclass(frozen=True)
class Estimate:
    """Of the mean of a few numbers."""

    n: int
    mean: float
    spread: float  # their standard deviation, or what rounding makes of it

    @property
    def error(self) -> float:
        return self.spread / math.sqrt(self.n)

    @property
    def p(self) -> float | None:
        """That the mean is this far from 0 or farther, if it is 0; two-sided."""
        from scipy.special import stdtr

        if self.n < 2:
            return None
        if self.spread == 0:
            return 1.0 if self.mean == 0 else 0.0
        return float(2 * stdtr(self.n - 1, -abs(self.mean) / self.error))

    def interval(self, alpha: float = ALPHA) -> tuple[float, float] | None:
        """Holds the mean with a confidence of 1 - alpha."""
        from scipy.special import stdtrit  # the quantile of Student's t: scipy.stats would load three times as long

        if self.n < 2:
            return None
        reach = float(stdtrit(self.n - 1, 1 - alpha / 2)) * self.error
        return self.mean - reach, self.mean + reach

    def seeds_needed(self, alpha: float, least: int = 2) -> int | None:
        """So many that a mean and a spread like these would show with a power of 80 %; None: no number of them."""
        if self.n < 2 or self.mean == 0 or self.power(MOST_SEEDS, alpha) < POWER:
            return None
        low, high = least - 1, MOST_SEEDS
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if middle >= 2 and self.power(middle, alpha) >= POWER else (middle, high)
        return high

    def power(self, n: int, alpha: float) -> float:
        """How probable it is that n seeds tell such a mean from 0."""
        from scipy.special import nctdtr, stdtrit

        if self.spread == 0:
            return 1.0
        away = abs(self.mean) / self.spread * math.sqrt(n)
        edge = float(stdtrit(n - 1, 1 - alpha / 2))
        return 1.0 if away > 30 + edge else float(1 - nctdtr(n - 1, away, edge))


def estimate(values: Sequence[float], step: float = 0.0) -> Estimate:
    """Of at least one number; `step` is what they are rounded to."""
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return Estimate(len(values), statistics.fmean(values), max(spread, step / math.sqrt(6)))


def step_of(metric: str, largest: float, values: Iterable[float]) -> float:
    """What an accuracy or a success goes up by: at most what one example is worth, or was seen; losses have none.

    `largest` is of the task's own test; of lm-eval's documents the step that was seen tells.
    """
    if not is_percentage(metric) and "success" not in metric:
        return 0.0
    finest = finest_step(values) or largest
    return finest if "eval/" in metric else min(largest, finest)


def finest_step(values: Iterable[float]) -> float:
    """The smallest distance between two different numbers; 0 where all are the same."""
    there = sorted(set(values))
    near = 1e-9 * max((abs(value) for value in there), default=0.0)  # sums in another order, not another number
    return min((b - a for a, b in pairwise(there) if b - a > near), default=0.0)


def bootstrap(values: Sequence[float], alpha: float = ALPHA) -> tuple[float, float] | None:
    """The bias-corrected and accelerated bootstrap interval of the mean; None where seeds are too few for it."""
    if len(values) < BOOTSTRAP_FROM:
        return None
    if len(set(values)) == 1:
        return values[0], values[0]
    import numpy as np
    from scipy.stats import bootstrap as resampled

    found = resampled((values,), np.mean, confidence_level=1 - alpha, n_resamples=RESAMPLES, rng=0)
    low, high = found.confidence_interval
    return float(low), float(high)


def holm(chances: Sequence[float | None], alpha: float = ALPHA) -> list[float]:
    """The level at which each comparison's interval is drawn; what has no p is no comparison."""
    order = sorted((p, place) for place, p in enumerate(chances) if p is not None)
    levels = [alpha] * len(chances)
    stopped: float | None = None
    for rank, (p, place) in enumerate(order):
        level = alpha / (len(order) - rank) if stopped is None else stopped
        levels[place] = level
        stopped = level if p > level else stopped  # the rest cannot do better than the one that failed
    return levels
