"""Intervals of proportions of test examples, in percent: exact ones, and ones clipped to the possible range.

    p = (value - low) / (high - low)          low is 0, or for normalized metrics what an accuracy of 0 becomes
    k = n p of n examples                     Clopper-Pearson: [B(0.025; k, n - k + 1), B(0.975; k + 1, n - k)]

B is the quantile of the beta distribution. A normal interval has width 0 if all examples are right, this one has not.
If several tokens of an example are scored, n is the effective number p (1 - p) / se^2 + 1, where se is the standard
error over examples.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hqlt_lab.stats.intervals import ALPHA
from hqlt_lab.stats.metric_scale import is_percentage

WHOLE_TEST_METRICS = ("accuracy", "success")  # scored on every example of the test, unlike accuracies by length


@dataclass(frozen=True)
class PercentRange:
    """Smallest and largest possible value of a metric in percent, and the number of examples it is measured on."""

    low: float | None  # None: not known
    high: float = 100.0
    examples: int | None = None  # None: not known

    def clip(self, interval: tuple[float, float]) -> tuple[float, float]:
        """Return the part of an interval that lies in the range."""
        low, high = interval
        return low if self.low is None else max(low, self.low), min(high, self.high)

    def clip_difference(self, interval: tuple[float, float], other: "PercentRange") -> tuple[float, float]:
        """Return the part of an interval that is possible for a value of this range minus one of the other."""
        low, high = interval
        return (
            low if self.low is None else max(low, self.low - other.high),
            high if other.low is None else min(high, self.high - other.low),
        )

    def exact_interval(self, value: float, standard_error: float) -> tuple[float, float] | None:
        """Return the Clopper-Pearson interval of one seed over test examples; None if their number is not known."""
        from scipy.special import betaincinv  # importing scipy.stats takes three times as long

        if self.low is None:
            return None
        span = self.high - self.low
        p = min(max((value - self.low) / span, 0.0), 1.0)
        n = 1 + p * (1 - p) * (span / standard_error) ** 2 if standard_error > 0 and 0 < p < 1 else self.examples
        if n is None:
            return None
        k = p * n
        low = float(betaincinv(k, n - k + 1, ALPHA / 2)) if k > 0 else 0.0
        high = float(betaincinv(k + 1, n - k, 1 - ALPHA / 2)) if p < 1 else 1.0
        return self.low + span * low, self.low + span * high


def percent_range(metric: str, task: Any | None) -> PercentRange | None:
    """Return the range of a metric of a task, None if it is not in percent; without a task less is known."""
    if not is_percentage(metric) and "success" not in metric:
        return None
    is_lm_eval = "eval/" in metric
    name = metric.rpartition("/")[2].removeprefix("short_")
    if not name.startswith("normalized_"):
        low: float | None = 0.0
    else:
        chance = None if task is None else getattr(task, "chance_level", None)
        low = None if chance is None else -100 * chance / (100 - chance)
    is_whole_test = name.removeprefix("normalized_") in WHOLE_TEST_METRICS and not is_lm_eval
    return PercentRange(low, examples=task.eval_size if task is not None and is_whole_test else None)


def percent_ranges(metrics: list[str], task: Any | None) -> Mapping[str, PercentRange]:
    """Return the range of each metric that is in percent."""
    ranges = {metric: percent_range(metric, task) for metric in metrics}
    return {metric: value for metric, value in ranges.items() if value is not None}
