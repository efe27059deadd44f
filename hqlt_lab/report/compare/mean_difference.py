"""The difference of two means, with its 95 % interval.

If both sides share two seeds or more, values are paired by seed. A seed determines the initial weights and the
batches, so their common effect cancels.

    d_i = b_i - a_i,   mean(d) -+ t_{0.975, n-1} s_d / sqrt(n)

Otherwise Welch's interval, for two samples whose variances may differ.

    mean(b) - mean(a) -+ t_{0.975, df} sqrt(v_a + v_b)         v = s^2 / n
    df = (v_a + v_b)^2 / (v_a^2 / (n_a - 1) + v_b^2 / (n_b - 1))

A spread is at least that of rounding to the resolution of the metric (`intervals`): resolution / sqrt(12) for one
value, resolution / sqrt(6) for a difference of two. Intervals of percentages are clipped to possible values.
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hqlt_lab.stats.intervals import estimate_mean
from hqlt_lab.stats.proportion_intervals import PercentRange


@dataclass(frozen=True, kw_only=True)
class MeanDifference:
    """Mean of the second sample minus mean of the first, with a 95 % interval."""

    mean: float
    low: float | None = None  # None: fewer than two seeds in a sample
    high: float | None = None
    method: Literal["paired by seed", "Welch"]


def mean_difference(
    first: Mapping[int, float],
    second: Mapping[int, float],
    resolution: float = 0.0,
    first_range: PercentRange | None = None,
    second_range: PercentRange | None = None,
) -> MeanDifference | None:
    """Return the difference of means of two samples given as seed -> value; None if one is empty.

    `resolution` is the step that values are rounded to, the ranges are those of a metric in percent.
    """
    if not first or not second:
        return None
    shared = [seed for seed in first if seed in second]
    method: Literal["paired by seed", "Welch"]
    if len(shared) > 1 or first.keys() == second.keys():
        estimate = estimate_mean([second[seed] - first[seed] for seed in shared], resolution)
        mean, interval, method = estimate.mean, estimate.confidence_interval(), "paired by seed"
    else:
        a, b = list(first.values()), list(second.values())
        mean, method = statistics.fmean(b) - statistics.fmean(a), "Welch"
        half_width = welch_half_width(a, b, resolution)
        interval = None if half_width is None else (mean - half_width, mean + half_width)
    if interval is not None and first_range is not None and second_range is not None:
        interval = second_range.clip_difference(interval, first_range)
    low, high = interval or (None, None)
    return MeanDifference(mean=mean, low=low, high=high, method=method)


def welch_half_width(a: list[float], b: list[float], resolution: float = 0.0) -> float | None:
    """Return half the width of Welch's 95 % interval; None if a sample has fewer than two values."""
    if min(len(a), len(b)) < 2:
        return None
    from scipy.special import stdtrit  # quantile of Student's t; importing scipy.stats takes three times as long

    variance_a, variance_b = (max(statistics.variance(values), resolution**2 / 12) / len(values) for values in (a, b))
    if variance_a + variance_b == 0:
        return 0.0
    degrees_of_freedom = (variance_a + variance_b) ** 2 / (variance_a**2 / (len(a) - 1) + variance_b**2 / (len(b) - 1))
    return float(stdtrit(degrees_of_freedom, 0.975)) * math.sqrt(variance_a + variance_b)
