"""Steps to solve of each seed: the first validation at which the solved metric reaches `measure.solved`.

The metric is the first reported one, on the validation split. Training is validated every `train.valid_every` steps, so
a seed may have solved the task up to that many steps earlier.

A seed that does not reach the threshold is censored at the end of its training, or at its last validation while it
still runs. If it diverged, failed or was pruned, it is censored at the planned end of training, because a later
solution was unlikely. If it reached the threshold before that, it counts as solved.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hqlt_lab.experiment.expand_cells import iter_points
from hqlt_lab.experiment.load_experiment import Arm, Experiment
from hqlt_lab.experiment.run_settings import MeasureConfig
from hqlt_lab.report.read_curves import read_curve
from hqlt_lab.rundir.cell_state import LOST_STATES
from hqlt_lab.stats.survival_curve import (
    MedianInterval,
    SurvivalStep,
    TimeToGoal,
    estimate_survival,
    median_interval,
    median_time,
)

if TYPE_CHECKING:
    from hqlt_lab.study.ledger.cell_record import CellRecord


@dataclass(frozen=True, kw_only=True)
class SolveTimes:
    """Steps to solve of the seeds of one arm, with the Kaplan-Meier curve and its median."""

    metric: str  # the validation metric
    valid_every: int  # steps between two validations
    by_seed: Mapping[int, TimeToGoal]
    curve: Sequence[SurvivalStep]
    median: int | None  # None: more than half of the seeds have not solved the task
    interval: MedianInterval | None  # of the median; None: not known

    @property
    def num_solved(self) -> int:
        return sum(time.is_reached for time in self.by_seed.values())

    @property
    def last_step(self) -> int:
        """The last step at which any seed was observed."""
        return max(time.time for time in self.by_seed.values())


def measure_solve_times(experiment: Experiment, arm: Arm, records: Sequence["CellRecord"]) -> SolveTimes | None:
    """Return the steps to solve of an arm's reported cells; None without a threshold or without validation curves."""
    measure = experiment.measure
    metric = measure.validation_metric
    if measure.solved is None or metric is None:
        return None
    curves = {record.seed: read_curve(record.folder, metric) for record in records}
    if not any(curves.values()):
        return None
    point = records[0].point or next(iter_points(experiment.tune))
    train = experiment.make_cell(arm, point, records[0].seed).train
    by_seed = {}
    for record in records:
        curve = curves[record.seed]
        end = train.steps if record.state in LOST_STATES else max(curve, default=0)
        time = find_time_to_solve(curve, measure, end)
        if time.time:  # a seed without any validation was not observed
            by_seed[record.seed] = time
    times = list(by_seed.values())
    return SolveTimes(
        metric=metric,
        valid_every=train.valid_every,
        by_seed=by_seed,
        curve=estimate_survival(times),
        median=median_time(times),
        interval=median_interval(times),
    )


def find_time_to_solve(curve: Mapping[int, float], measure: MeasureConfig, end: int) -> TimeToGoal:
    """Return the first step of a curve that reaches `measure.solved`, or the end if none does."""
    threshold = measure.solved
    assert threshold is not None
    is_maximized = measure.metric_direction(measure.primary_metric) == "maximize"
    solved = [step for step, value in curve.items() if (value >= threshold if is_maximized else value <= threshold)]
    return TimeToGoal(min(solved), True) if solved else TimeToGoal(end, False)
