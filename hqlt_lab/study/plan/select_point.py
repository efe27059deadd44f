"""Select the best tuned point of an arm by `measure.select`, which never uses the test set.

The score of a point is the `measure.statistic` over its seeds.  A seed that diverged, failed or was pruned counts as
worse than any finished one, so a point loses when half of its seeds are lost.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from hqlt_lab.experiment.run_settings import MeasureConfig
from hqlt_lab.rundir.cell_state import SETTLED_STATES
from hqlt_lab.study.ledger.cell_record import CellRecord, group_by_point


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
