"""Summary statistics of one metric over seeds.

MAD = median |x_i - median(x)|                 not scaled, as the paper prints it
low, high: a 95 % interval of the mean         over seeds (`intervals`); with a single seed, over test examples

Over test examples the interval of a percentage is exact (`proportion_intervals`), that of other metrics normal.
Intervals of percentages are clipped to possible values.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hqlt_lab.stats.intervals import bootstrap_interval, estimate_mean
from hqlt_lab.stats.proportion_intervals import PercentRange

Direction = Literal["maximize", "minimize"]
NORMAL_QUANTILE = 1.959964  # 97.5 % quantile of the standard normal distribution


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Summary of one metric over seeds."""

    n: int
    median: float
    mad: float
    mean: float
    low: float | None  # 95 % interval of the mean; None: spread unknown
    high: float | None
    interval_over: Literal["seeds", "examples"] = "seeds"  # what the interval generalizes over
    best: float
    solved: tuple[int, int] | None = None  # (solved seeds, ended seeds); None without a threshold


def summarize_seeds(
    values: Sequence[float],
    direction: Direction,
    threshold: float | None = None,
    num_lost: int = 0,
    standard_error: float | None = None,
    use_bootstrap: bool = False,
    value_range: PercentRange | None = None,
    resolution: float = 0.0,
) -> Summary | None:
    """Summarize values of seeds; None without values.

    The `num_lost` seeds that ended without a value count as not solved. `standard_error` is that of a single seed over
    its test examples. `use_bootstrap` selects the bootstrap interval where there are enough seeds. `value_range` is
    that of a metric in percent, `resolution` the step that its values are rounded to.
    """
    if not values:
        return None
    interval = mean_interval(values, use_bootstrap, resolution)
    interval_over: Literal["seeds", "examples"] = "seeds"
    if len(values) == 1 and standard_error is not None:
        interval, interval_over = example_interval(values[0], standard_error, value_range), "examples"
    if interval is not None and value_range is not None:
        interval = value_range.clip(interval)
    low, high = interval or (None, None)
    return Summary(
        n=len(values),
        median=statistics.median(values),
        mad=median_absolute_deviation(values),
        mean=statistics.fmean(values),
        low=low,
        high=high,
        interval_over=interval_over,
        best=best_value(values, direction),
        solved=None if threshold is None else (count_solved(values, threshold, direction), len(values) + num_lost),
    )


def example_interval(
    value: float, standard_error: float, value_range: PercentRange | None
) -> tuple[float, float] | None:
    """Return a 95 % interval of one seed's value over test examples; None if their number is needed and not known."""
    exact = value_range.exact_interval(value, standard_error) if value_range else None
    if exact is not None or (value_range is not None and standard_error == 0):
        return exact
    return value - NORMAL_QUANTILE * standard_error, value + NORMAL_QUANTILE * standard_error


def median_absolute_deviation(values: Sequence[float]) -> float:
    """Return the median absolute deviation from the median, unscaled."""
    median = statistics.median(values)
    return statistics.median(abs(value - median) for value in values)


def mean_interval(
    values: Sequence[float], use_bootstrap: bool = False, resolution: float = 0.0
) -> tuple[float, float] | None:
    """Return a 95 % interval of the mean: bootstrap if requested and there are enough values, else Student's t."""
    bootstrap = bootstrap_interval(values, resolution=resolution) if use_bootstrap else None
    return bootstrap or estimate_mean(values, resolution).confidence_interval()


def best_value(values: Sequence[float], direction: Direction) -> float:
    return max(values) if direction == "maximize" else min(values)


def count_solved(values: Sequence[float], threshold: float, direction: Direction) -> int:
    """Return how many values reach the threshold; equality counts."""
    return sum(value >= threshold if direction == "maximize" else value <= threshold for value in values)
