"""Hyperparameter search: the search space as Optuna distributions, and the selection of the best point.

If any tuned axis is a range, all axes are searched; lists then become categorical axes.

The best point of an arm is selected by `measure.select`, which never uses the test set.  The score of a point is the
`measure.statistic` over its seeds.  A seed that diverged, failed or was pruned counts as worse than any finished one,
so a point loses when half of its seeds are lost.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hqlt_lab.experiment.parse_axes import Range
from hqlt_lab.experiment.run_settings import MeasureConfig
from hqlt_lab.study.ledger.cell_record import SETTLED_STATES, CellRecord, group_by_point

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


TuneAxes = Mapping[str, list[Any] | Range]


def build_search_space(tune: TuneAxes) -> "dict[str, BaseDistribution]":
    """Map each tuned path to an Optuna distribution; empty for a grid."""
    if not any(isinstance(axis, Range) for axis in tune.values()):
        return {}
    return {path: make_distribution(axis) for path, axis in tune.items()}


def make_distribution(axis: list[Any] | Range) -> "BaseDistribution":
    """Return the Optuna distribution of one axis: integers stay integers, and a list is searched by its indices.

    Indices are used because the values of a list may be components, which Optuna cannot store as categories.
    """
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(axis, list):
        return CategoricalDistribution(range(len(axis)))
    if isinstance(axis.low, int) and isinstance(axis.high, int):
        return IntDistribution(axis.low, axis.high, log=axis.log)
    return FloatDistribution(axis.low, axis.high, log=axis.log)


def count_trials(tune: TuneAxes) -> int:
    """Return the number of points per arm: the largest `trials` of any range."""
    return max(axis.trials for axis in tune.values() if isinstance(axis, Range))


def point_from_params(params: Mapping[str, Any], tune: TuneAxes) -> dict[str, Any]:
    """Convert the parameters of an Optuna trial to tuned values."""
    point: dict[str, Any] = {}
    for path, axis in tune.items():
        point[path] = axis[params[path]] if isinstance(axis, list) else params[path]
    return point


def params_from_point(point: Mapping[str, Any], tune: TuneAxes) -> dict[str, Any]:
    """Convert tuned values to the parameters of an Optuna trial."""
    return {path: axis.index(point[path]) if isinstance(axis, list) else point[path] for path, axis in tune.items()}


def select_point(records: Sequence[CellRecord], measure: MeasureConfig) -> Mapping[str, Any] | None:
    """Return the best point of one arm (the first one in case of a tie), or None while no point has a settled cell."""
    scored = [(score_point(group, measure), point) for point, group in group_by_point(records) if has_settled(group)]
    if not scored:
        return None
    best = max(score for score, _ in scored)
    return next(point for score, point in scored if score == best)


def has_settled(records: Sequence[CellRecord]) -> bool:
    return any(record.state in SETTLED_STATES for record in records)


def score_point(records: Sequence[CellRecord], measure: MeasureConfig) -> float:
    """Return the score of a point over its settled seeds; larger is better for either direction."""
    sign = 1.0 if measure.direction == "maximize" else -1.0
    values = [score_or_worst(record, measure.select, sign) for record in records if record.state in SETTLED_STATES]
    if measure.statistic == "best":
        return max(values)
    if measure.statistic == "mean":
        return statistics.fmean(values)
    middle = sorted(values)[(len(values) - 1) // 2 : len(values) // 2 + 1]
    return -math.inf if -math.inf in middle else statistics.fmean(middle)


def score_or_worst(record: CellRecord, metric: str, sign: float) -> float:
    """Return the signed metric of a finished seed, or minus infinity if there is none."""
    value = record.metrics.get(metric, math.nan) if record.state == "done" else math.nan
    return -math.inf if math.isnan(value) else sign * value
