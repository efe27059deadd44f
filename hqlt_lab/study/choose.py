"""Which tuned point an arm is judged by: the best by `measure.select`, which never sees the test set.

The score of a point is the `measure.statistic` of its seeds.  A seed that diverged, failed or was pruned ranks below
every number, so a point loses when half of its seeds are lost.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from hqlt_lab.experiment.cell import digest
from hqlt_lab.experiment.settings import MeasureConfig
from hqlt_lab.study.record import SETTLED, Record


def by_point(records: Sequence[Record]) -> list[tuple[Mapping[str, Any], list[Record]]]:
    """The records of an arm, gathered by tuned point, in the order in which the points first appear."""
    groups: dict[str, tuple[Mapping[str, Any], list[Record]]] = {}
    for record in records:
        groups.setdefault(digest(record.point), (record.point, []))[1].append(record)
    return list(groups.values())


def chosen_point(records: Sequence[Record], measure: MeasureConfig) -> Mapping[str, Any] | None:
    """The best point of one arm; of equals the first; None while no point has a settled cell."""
    scored = [(score(group, measure), point) for point, group in by_point(records) if any_settled(group)]
    if not scored:
        return None
    best = max(value for value, _ in scored)
    return next(point for value, point in scored if value == best)


def any_settled(group: Sequence[Record]) -> bool:
    return any(record.state in SETTLED for record in group)


def score(group: Sequence[Record], measure: MeasureConfig) -> float:
    """What a point is worth, larger is better whatever the direction."""
    sign = 1.0 if measure.direction == "maximize" else -1.0
    values = [worth(record, measure.select, sign) for record in group if record.state in SETTLED]
    if measure.statistic == "best":
        return max(values)
    if measure.statistic == "mean":
        return statistics.fmean(values)
    middle = sorted(values)[(len(values) - 1) // 2 : len(values) // 2 + 1]
    return -math.inf if -math.inf in middle else statistics.fmean(middle)


def worth(record: Record, metric: str, sign: float) -> float:
    """A seed's number; nothing is worse than none."""
    value = record.metrics.get(metric, math.nan) if record.state == "done" else math.nan
    return -math.inf if math.isnan(value) else sign * value
