"""Tuning windows: for each tuned list of numbers, the values with which an arm works.

The cells are those that select the tuned values. If several settings are tuned, the others have their selected values.

    score      measure.statistic of measure.select over the seeds, as in the selection: a lost seed is worse than any
    works      with measure.solved: the same statistic of the validation metric reaches it
               without: the score is at most NEAR_BEST points (NEAR_BEST percent of other metrics) below the arm's best
    window     the neighboring values around the selected one that all work; if it does not work, around the best one
    width      high / low of the window, to (first value above) / (first value below), which do not work

The ends of the true window lie between a value that works and its neighbor that does not. If the window contains the
smallest or the largest value of the list, it may continue beyond, and only the lower limit of its width is known.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hqlt_lab.experiment.load_experiment import Experiment
from hqlt_lab.experiment.parse_axes import Range
from hqlt_lab.experiment.run_settings import MeasureConfig
from hqlt_lab.report.stats.summary import count_solved
from hqlt_lab.rundir.cell_state import LOST_STATES, SETTLED_STATES
from hqlt_lab.stats.metric_scale import is_percentage
from hqlt_lab.study.ledger.cell_record import CellRecord
from hqlt_lab.study.plan.select_point import score_point

NEAR_BEST = 5.0  # points of a metric in percent; percent of the best score of other metrics


@dataclass(frozen=True, kw_only=True)
class TunedValue:
    """Results of one arm with one value of a tuned list, over the seeds that select the value."""

    value: float
    score: float | None  # None: no seed has ended, or the lost seeds decide
    values_by_seed: Mapping[int, float]  # of measure.select, finished seeds only
    solved: tuple[int, int] | None  # (seeds that solve the task on the validation split, ended seeds)
    unfinished_counts: Mapping[str, int]  # state -> cells without a result
    works: bool

    @property
    def lost_counts(self) -> dict[str, int]:
        """State -> number of cells that ended without a result."""
        return {state: count for state, count in self.unfinished_counts.items() if state in LOST_STATES}


@dataclass(frozen=True, kw_only=True)
class TuningWindow:
    """One tuned list of an arm: the results of its values, and the window of those that work."""

    path: str
    chosen: float | None  # the selected value; None: no cell has ended
    values: Sequence[TunedValue]  # from the smallest value to the largest
    metric: str  # the validation metric that decides whether a value works
    bound: float | None  # that it has to reach; None: no value has a score
    is_complete: bool  # all cells have ended
    # ends of the window; None: no value works, or not all cells have ended
    low: float | None = None
    high: float | None = None
    below: float | None = None  # the nearest smaller value, which does not work; None: the window reaches the smallest
    above: float | None = None

    @property
    def factor_range(self) -> tuple[float, float | None] | None:
        """Smallest and largest possible width of the window as a factor; the latter is None if it is not known.

        None without a window, or if its values are not all positive.
        """
        if self.low is None or self.high is None or self.low <= 0:
            return None
        has_ends = self.below is not None and self.above is not None and self.below > 0
        return self.high / self.low, self.above / self.below if has_ends else None  # type: ignore[operator]

    @property
    def is_narrow(self) -> bool:
        """Whether a single value works, so that the window is narrower than the spacing of the list."""
        return self.low is not None and self.low == self.high


def find_tuning_windows(
    experiment: Experiment, point: Mapping[str, Any] | None, tuning_records: Sequence[CellRecord]
) -> list[TuningWindow]:
    """Return the window of each tuned list of at least two numbers; none if a range is searched.

    `point` is the selected point of the arm, `tuning_records` are the cells that select it.
    """
    tune = experiment.tune
    if any(isinstance(axis, Range) for axis in tune.values()):
        return []
    return [
        find_window(path, sorted(axis), point, tuning_records, experiment.measure)
        for path, axis in tune.items()
        if isinstance(axis, list) and len(axis) > 1 and all(map(is_number, axis))
    ]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def find_window(
    path: str,
    axis: Sequence[float],
    point: Mapping[str, Any] | None,
    tuning_records: Sequence[CellRecord],
    measure: MeasureConfig,
) -> TuningWindow:
    """Return the window of one tuned list, whose values are sorted."""
    groups = [select_records(tuning_records, {**(point or {}), path: value}) for value in axis]
    measure_by_works = works_measure(measure, tuning_records)
    sign = 1.0 if measure_by_works.direction == "maximize" else -1.0
    scores = [score_or_none(group, measure_by_works) for group in groups]
    known_scores = [score for score in scores if score is not None]
    bound = find_bound(known_scores, measure_by_works)
    works = [bound is not None and score is not None and score >= bound for score in scores]
    values = [
        build_tuned_value(value, group, measure, does_work)
        for value, group, does_work in zip(axis, groups, works, strict=True)
    ]
    window = TuningWindow(
        path=path,
        chosen=None if point is None else point.get(path),
        values=values,
        metric=measure_by_works.select,
        bound=None if bound is None else sign * bound,
        is_complete=all(group and len(settled_records(group)) == len(group) for group in groups),
    )
    if not window.is_complete or not any(works):
        return window
    working = [index for index, does_work in enumerate(works) if does_work]
    best = max(working, key=lambda index: scores[index] or 0.0)
    first, last = find_run(works, next((index for index in working if axis[index] == window.chosen), best))
    return replace(
        window,
        low=axis[first],
        high=axis[last],
        below=axis[first - 1] if first > 0 else None,
        above=axis[last + 1] if last + 1 < len(axis) else None,
    )


def select_records(records: Sequence[CellRecord], point: Mapping[str, Any]) -> list[CellRecord]:
    """Return the records at a point, of which only the given settings are compared."""
    return [record for record in records if all(record.point.get(path) == value for path, value in point.items())]


def settled_records(records: Sequence[CellRecord]) -> list[CellRecord]:
    return [record for record in records if record.state in SETTLED_STATES]


def works_measure(measure: MeasureConfig, records: Sequence[CellRecord]) -> MeasureConfig:
    """Return the measure by which a value works: by the solved metric where it was measured in validation.

    Otherwise `solved` is None in the result, and the selection metric decides.
    """
    metric = measure.validation_metric
    if measure.solved is None or metric is None or not any(metric in record.metrics for record in records):
        return replace(measure, solved=None)
    return replace(measure, select=metric, direction=measure.metric_direction(metric))


def score_or_none(records: Sequence[CellRecord], measure: MeasureConfig) -> float | None:
    """Return the signed score of a value, of which larger is better; None if it is not finite or no seed has ended."""
    score = score_point(records, measure) if settled_records(records) else -math.inf
    return score if math.isfinite(score) else None


def find_bound(scores: Sequence[float], measure: MeasureConfig) -> float | None:
    """Return the signed score from which a value works; None without scores."""
    if measure.solved is not None:
        return measure.solved if measure.direction == "maximize" else -measure.solved
    if not scores:
        return None
    best = max(scores)
    is_in_percent = is_percentage(measure.select) or "success" in measure.select
    return best - (NEAR_BEST if is_in_percent else NEAR_BEST / 100 * abs(best))


def find_run(works: Sequence[bool], index: int) -> tuple[int, int]:
    """Return the first and the last index of the neighbors of `index`, and itself, that all work."""
    first = last = index
    while first > 0 and works[first - 1]:
        first -= 1
    while last + 1 < len(works) and works[last + 1]:
        last += 1
    return first, last


def build_tuned_value(value: float, records: Sequence[CellRecord], measure: MeasureConfig, works: bool) -> TunedValue:
    """Return the results of one value of the list."""
    score = score_or_none(records, measure)
    done = [record for record in records if record.state == "done"]
    values_by_seed = {record.seed: record.metrics.get(measure.select, math.nan) for record in done}
    return TunedValue(
        value=value,
        score=score if score is None or measure.direction == "maximize" else -score,
        values_by_seed={seed: result for seed, result in values_by_seed.items() if math.isfinite(result)},
        solved=count_solved_seeds(records, measure),
        unfinished_counts=dict(Counter(record.state for record in records if record.state != "done")),
        works=works,
    )


def count_solved_seeds(records: Sequence[CellRecord], measure: MeasureConfig) -> tuple[int, int] | None:
    """Return how many ended seeds solve the task on the validation split; None if this is not known."""
    metric, settled = measure.validation_metric, settled_records(records)
    if measure.solved is None or metric is None or not settled:
        return None
    results = [record.metrics.get(metric, math.nan) for record in settled if record.state == "done"]
    if results and all(math.isnan(result) for result in results):
        return None
    return count_solved(results, measure.solved, measure.metric_direction(metric)), len(settled)
