"""The difference of two means, with its 95 % interval.

Two seeds or more that both sides have: pairs.  A seed fixes the initial weights and the batches, so what pairs share
cancels.

    d_i = b_i - a_i,   mean(d) -+ t_{0.975, n-1} s_d / sqrt(n)

Otherwise Welch's interval, for two samples whose spreads may differ.

    mean(b) - mean(a) -+ t_{0.975, df} sqrt(v_a + v_b)         v = s^2 / n
    df = (v_a + v_b)^2 / (v_a^2 / (n_a - 1) + v_b^2 / (n_b - 1))
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hqlt_lab.report.statistics import interval


@dataclass(frozen=True, kw_only=True)
class Gap:
    """The second minus the first."""

    mean: float
    low: float | None = None  # None: fewer than two seeds on a side
    high: float | None = None
    how: Literal["paired by seed", "Welch"]


def gap(first: Mapping[int, float], second: Mapping[int, float]) -> Gap | None:
    """From values by seed; None where a side has none."""
    if not first or not second:
        return None
    shared = [seed for seed in first if seed in second]
    if len(shared) > 1 or first.keys() == second.keys():
        pairs = [second[seed] - first[seed] for seed in shared]
        low, high = interval(pairs) or (None, None)
        return Gap(mean=statistics.fmean(pairs), low=low, high=high, how="paired by seed")
    a, b = list(first.values()), list(second.values())
    mean = statistics.fmean(b) - statistics.fmean(a)
    reach = welch(a, b)
    if reach is None:
        return Gap(mean=mean, how="Welch")
    return Gap(mean=mean, low=mean - reach, high=mean + reach, how="Welch")


def welch(a: list[float], b: list[float]) -> float | None:
    """Half the width of the interval."""
    if min(len(a), len(b)) < 2:
        return None
    from scipy.special import stdtrit  # as in report.statistics: scipy.stats would load three times as long

    of_a, of_b = statistics.variance(a) / len(a), statistics.variance(b) / len(b)
    if of_a + of_b == 0:
        return 0.0
    freedom = (of_a + of_b) ** 2 / (of_a**2 / (len(a) - 1) + of_b**2 / (len(b) - 1))
    return float(stdtrit(freedom, 0.975)) * math.sqrt(of_a + of_b)
