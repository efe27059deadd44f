"""Confidence intervals of a mean over a few seeds, and Holm's correction for multiple comparisons.

    mean -+ t_{1 - alpha/2, n-1} s / sqrt(n)            s with n - 1; seeds as draws of a normal distribution
    Holm: of m comparisons the j-th smallest p is compared with alpha / (m - j + 1), until one fails

An interval at its Holm level excludes 0 exactly if Holm's method rejects. So the probability that any verdict "better"
or "worse" by one metric is false is at most alpha.

An accuracy on a fixed test set is discrete, so two or three seeds may have equal values although their true spread is
not 0. Therefore s is at least the standard deviation of the difference of two values rounded to the resolution of the
metric: resolution / sqrt(6). A bootstrap interval of values with a smaller spread is replaced by this t-interval.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

ALPHA = 0.05
MIN_BOOTSTRAP_SEEDS = 10  # with fewer seeds bootstrap intervals are too short
NUM_RESAMPLES = 9999
TARGET_POWER = 0.8  # power for which `required_seeds` is computed
MAX_SEEDS = 1000


@dataclass(frozen=True)
class MeanEstimate:
    """Estimate of a mean from a few values."""

    n: int
    mean: float
    std: float  # standard deviation of the values, at least that of rounding
    pooled_degrees: int | None = None  # degrees of freedom, if `std` was estimated from other values too

    @property
    def degrees(self) -> int:
        """Degrees of freedom of the standard deviation."""
        return self.n - 1 if self.pooled_degrees is None else self.pooled_degrees

    @property
    def standard_error(self) -> float:
        return self.std / math.sqrt(self.n)

    @property
    def p_value(self) -> float | None:
        """Two-sided p of the t-test that the mean is 0; None with fewer than two values."""
        from scipy.special import stdtr

        if self.n < 2:
            return None
        if self.std == 0:
            return 1.0 if self.mean == 0 else 0.0
        return float(2 * stdtr(self.degrees, -abs(self.mean) / self.standard_error))

    def confidence_interval(self, alpha: float = ALPHA) -> tuple[float, float] | None:
        """Return the interval that contains the mean with confidence 1 - alpha; None with fewer than two values."""
        from scipy.special import stdtrit  # quantile of Student's t; importing scipy.stats takes three times as long

        if self.n < 2:
            return None
        half_width = float(stdtrit(self.n - 1, 1 - alpha / 2)) * self.standard_error
        return self.mean - half_width, self.mean + half_width

    def required_seeds(self, alpha: float, min_seeds: int = 2, margin: float | None = None) -> int | None:
        """Return how many seeds decide with a power of 80 % if this mean and spread are the true ones.

        They distinguish the mean from 0; with a margin, they show that it lies within the margin. None if MAX_SEEDS are
        not enough.
        """

        def power(n: int) -> float:
            return self.compute_power(n, alpha) if margin is None else self.equivalence_power(n, alpha, margin)

        if self.n < 2 or (margin is None and self.mean == 0) or power(MAX_SEEDS) < TARGET_POWER:
            return None
        low, high = min_seeds - 1, MAX_SEEDS
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if middle >= 2 and power(middle) >= TARGET_POWER else (middle, high)
        return high

    def compute_power(self, n: int, alpha: float, difference: float | None = None) -> float:
        """Return the probability that n seeds distinguish a true difference, by default this mean, from 0."""
        from scipy.special import nctdtr, stdtrit

        if self.std == 0:
            return 1.0
        noncentrality = abs(self.mean if difference is None else difference) / self.std * math.sqrt(n)
        critical_t = float(stdtrit(n - 1, 1 - alpha / 2))
        return 1.0 if noncentrality > 30 + critical_t else float(1 - nctdtr(n - 1, noncentrality, critical_t))

    def equivalence_power(self, n: int, alpha: float, margin: float) -> float:
        """Return the probability that the interval of n seeds lies within the margin, if this mean is the true one."""
        if abs(self.mean) >= margin:
            return 0.0
        distances = margin - abs(self.mean), margin + abs(self.mean)  # to the two ends of the margin
        return max(0.0, sum(self.compute_power(n, alpha, distance) for distance in distances) - 1)

    def equivalence_p_value(self, margin: float) -> float | None:
        """Return p of two one-sided t-tests that the mean is outside of the margin; None with fewer than two values.

        It is at most alpha exactly if the interval of confidence 1 - alpha lies within the margin.
        """
        from scipy.special import stdtr

        if self.n < 2:
            return None
        distance = margin - abs(self.mean)
        if self.std == 0 or distance <= 0:
            return 0.0 if distance > 0 else 1.0
        return float(2 * stdtr(self.degrees, -distance / self.standard_error))

    def detectable_difference(self, alpha: float) -> float | None:
        """Return the smallest true difference that n seeds of this spread find with a power of 80 %.

        None with fewer than two values.
        """
        return None if self.n < 2 else self.standard_error * detectable_noncentrality(self.n, alpha)


@cache
def detectable_noncentrality(n: int, alpha: float) -> float:
    """Return the true mean, in standard errors, that a t-test of n values finds with a power of 80 %."""
    unit = MeanEstimate(n, 0.0, math.sqrt(n))  # with a standard error of 1
    low, high = 0.0, 1.0
    while unit.compute_power(n, alpha, high) < TARGET_POWER:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if unit.compute_power(n, alpha, middle) >= TARGET_POWER else (middle, high)
    return high


def estimate_mean(values: Sequence[float], resolution: float = 0.0) -> MeanEstimate:
    """Estimate the mean of at least one value; `resolution` is the step that the values are rounded to."""
    return MeanEstimate(
        len(values), statistics.fmean(values), max(standard_deviation(values), resolution / math.sqrt(6))
    )


def standard_deviation(values: Sequence[float]) -> float:
    """Return the sample standard deviation; 0 for equal values or a single one. 20 times as fast as `statistics`."""
    if min(values) == max(values):
        return 0.0
    mean = statistics.fmean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def bootstrap_interval(
    values: Sequence[float], alpha: float = ALPHA, resolution: float = 0.0
) -> tuple[float, float] | None:
    """Return the bias-corrected and accelerated (BCa) bootstrap interval of the mean; None with too few values.

    Values that differ by less than the rounding to `resolution` have a t-interval of the width of rounding.
    """
    if len(values) < MIN_BOOTSTRAP_SEEDS:
        return None
    if statistics.stdev(values) <= resolution / math.sqrt(6) or len(set(values)) == 1:
        return estimate_mean(values, resolution).confidence_interval(alpha)
    import numpy as np
    from scipy.stats import bootstrap

    result = bootstrap((values,), np.mean, confidence_level=1 - alpha, n_resamples=NUM_RESAMPLES, rng=0)
    low, high = result.confidence_interval
    return float(low), float(high)


def holm_levels(p_values: Sequence[float | None], alpha: float = ALPHA) -> list[float]:
    """Return the significance level of each comparison's interval; entries without p are not counted as comparisons."""
    order = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    levels = [alpha] * len(p_values)
    failed_level: float | None = None
    for rank, (p, index) in enumerate(order):
        level = alpha / (len(order) - rank) if failed_level is None else failed_level
        levels[index] = level
        failed_level = level if p > level else failed_level  # all larger p keep the level of the first that fails
    return levels
