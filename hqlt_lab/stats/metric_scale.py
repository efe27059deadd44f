"""Scale of a metric: whether it is in percent, and the step by which it can change."""

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING

from hqlt_lab.experiment.expand_cells import iter_points
from hqlt_lab.experiment.lm_eval_section import PERCENT_METRICS

if TYPE_CHECKING:
    from hqlt_lab.experiment.load_experiment import Experiment


def is_percentage(metric: str) -> bool:
    """Return whether a metric is in percent: accuracies of this project and of lm-eval."""
    name = metric.rpartition("eval/")[2].split("/")[-1]
    return "accuracy" in metric or ("eval/" in metric and name in (*PERCENT_METRICS, "average"))


def metric_resolution(metric: str, max_resolution: float, values: Iterable[float]) -> float:
    """Return the step by which an accuracy or success rate can change; 0 for other metrics.

    It is the smallest gap between observed values, limited by `max_resolution`, what one example of the task's own test
    changes. lm-eval uses other test sets, so the limit does not apply to its metrics.
    """
    if not is_percentage(metric) and "success" not in metric:
        return 0.0
    observed = smallest_gap(values) or max_resolution
    return observed if "eval/" in metric else min(max_resolution, observed)


def smallest_gap(values: Iterable[float]) -> float:
    """Return the smallest distance between two different values; 0 if all are equal."""
    distinct = sorted(set(values))
    tolerance = 1e-9 * max((abs(value) for value in distinct), default=0.0)  # differences of summation order
    return min((b - a for a, b in pairwise(distinct) if b - a > tolerance), default=0.0)


def accuracy_resolution(experiment: "Experiment") -> float:
    """Return an upper bound, in percent, on how much one test example changes a (normalized) accuracy.

    It is 200 / eval_size, because the chance level is at most 50 %.
    """
    if not experiment.base.get("task"):
        return 0.0  # study loaded from its folder only: the task is not known
    cell = experiment.make_cell(experiment.arms[0], next(iter_points(experiment.tune)), experiment.seeds[0])
    return 200 / int(cell.task.get("eval_size", 200))
