"""Build one row per arm, at the arm's selected hyperparameters (its point).

With `tune` lists every point is trained on every seed, and the row shows the seeds of the selected point. With searched
ranges, or if seeds are added until all comparisons are decided, the cells of the tuning seeds (`is_reported` is False)
select the point, and only the other cells are shown.
Only finished cells contribute values; unfinished cells are counted by state.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hqlt_lab.errors import HqltError
from hqlt_lab.experiment.arm_title import ArmTitle
from hqlt_lab.experiment.expand_cells import iter_points
from hqlt_lab.experiment.load_experiment import Arm, Experiment
from hqlt_lab.experiment.run_settings import MeasureConfig
from hqlt_lab.hashing import hash_json
from hqlt_lab.registry import build
from hqlt_lab.report.lm_eval_protocol_filter import drop_other_protocols
from hqlt_lab.report.stats.row_differences import attach_differences
from hqlt_lab.report.stats.solve_times import SolveTimes, measure_solve_times
from hqlt_lab.report.stats.summary import Summary, summarize_seeds
from hqlt_lab.report.stats.tuning_windows import TuningWindow, find_tuning_windows
from hqlt_lab.rundir.cell_state import LOST_STATES, SETTLED_STATES
from hqlt_lab.stats.baseline_differences import Difference, find_baselines
from hqlt_lab.stats.metric_scale import accuracy_resolution, metric_resolution
from hqlt_lab.stats.proportion_intervals import PercentRange, percent_ranges
from hqlt_lab.stats.sequential_testing import LookSchedule
from hqlt_lab.study.ledger.cell_record import CellRecord, group_by_point
from hqlt_lab.study.plan.select_point import select_point

UNFINISHED_STATES = ("waiting", "running", "failed", "diverged", "pruned")
BUDGET_STATES = ("done", "diverged", "pruned")  # states that count toward the tuning budget; failed cells do not


@dataclass(frozen=True, kw_only=True)
class Row:
    """Results of one arm, or a quoted result of another paper."""

    title: ArmTitle
    is_quoted: bool = False  # quoted from another paper: shown, never trained
    records: Sequence[CellRecord] = ()  # cells of the selected point
    num_seeds: int = 0  # planned number of these cells
    summaries: Mapping[str, Summary] = field(default_factory=dict)  # by reported metric
    differences: Mapping[str, Difference] = field(default_factory=dict)  # from the baseline, by reported metric
    point: Mapping[str, Any] | None = None  # tuned path -> selected value; None: no cell has finished yet
    points_tried: int = 0  # tuned points with at least one ended cell
    cells_tried: int = 0  # ended tuning cells
    num_tuning_seeds: int = 0  # tuning cells of the selected point that have a result or are not finished yet
    tuning_windows: Sequence[TuningWindow] = ()  # of each tuned list of numbers
    solve_times: SolveTimes | None = None  # None without `measure.solved` or without validation curves
    published_values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # metric -> best, median, mad
    unfinished_counts: Mapping[str, int] = field(default_factory=dict)  # state -> number of cells
    percent_ranges: Mapping[str, PercentRange] = field(default_factory=dict)  # of the metrics in percent

    @property
    def finished_records(self) -> list[CellRecord]:
        return [record for record in self.records if record.state == "done"]

    @property
    def has_ended_without_result(self) -> bool:
        """True if all cells have ended and none has a result."""
        pending = sum(self.unfinished_counts.get(state, 0) for state in ("waiting", "running"))
        return bool(self.records) and not self.finished_records and not pending

    def seeds_without_value(self, metric: str) -> set[int]:
        """Return the seeds that ended without a finite value of the metric."""
        return {record.seed for record in self.records if record.state in SETTLED_STATES} - self.values_by_seed(
            metric
        ).keys()

    def values_by_seed(self, metric: str) -> dict[int, float]:
        """Return the finite values of the metric by finished seed."""
        return finite_values_by_seed(metric, self.finished_records)

    @property
    def parameters(self) -> int:
        return max((record.parameters for record in self.records), default=0)

    @property
    def state_bytes(self) -> int:
        return max((record.state_bytes for record in self.records), default=0)

    @property
    def flops_per_token(self) -> float:
        return max((record.flops_per_token for record in self.records), default=0.0)

    @property
    def tokens_per_second(self) -> float:
        return statistics.median([record.tokens_per_second for record in self.finished_records] or [0.0])

    @property
    def step_range(self) -> tuple[int, int] | None:
        """The smallest and largest number of steps over finished seeds."""
        steps = [record.step for record in self.finished_records]
        return (min(steps), max(steps)) if steps else None


def build_rows(experiment: Experiment, records: Sequence[CellRecord]) -> list[Row]:
    """Build the rows of all arms in the order of the file, followed by quoted results."""
    by_arm: dict[ArmTitle, list[CellRecord]] = {}
    for record in drop_other_protocols(records):
        by_arm.setdefault(record.arm, []).append(record)
    resolution = accuracy_resolution(experiment)
    arms = [build_row(experiment, arm, by_arm.get(arm.title, []), resolution) for arm in experiment.arms]
    schedule = LookSchedule(tuple(experiment.final_seeds), experiment.looks) if experiment.looks else None
    arms = attach_differences(arms, find_baselines(experiment.arms), experiment.measure, resolution, schedule)
    quoted = [
        Row(title=ArmTitle(str(name)), is_quoted=True, published_values=values)
        for name, values in experiment.quoted.items()
    ]
    return arms + quoted


def build_task(experiment: Experiment, arm: Arm, point: Mapping[str, Any] | None) -> Any | None:
    """Return the task of an arm at a tuned point; None if it is not known or not installed here."""
    if not experiment.base.get("task"):
        return None  # study loaded from its folder only
    cell = experiment.make_cell(arm, point or next(iter_points(experiment.tune)), experiment.seeds[0])
    with suppress(HqltError):
        return build("task", cell.task)
    return None


def build_row(experiment: Experiment, arm: Arm, records: Sequence[CellRecord], resolution: float) -> Row:
    """Build the row of one arm from its records."""
    tuning = [record for record in records if not record.is_reported] or records
    point = select_point(tuning, experiment.measure) if experiment.tune else {}
    shown = [record for record in records if record.is_reported and hash_json(record.point) == hash_json(point)]
    ended = [record for record in tuning if record.state in BUDGET_STATES]
    selected = [record for record in tuning if hash_json(record.point) == hash_json(point)]
    ranges = percent_ranges(reported_metrics(experiment.measure), build_task(experiment, arm, point))
    return Row(
        title=arm.title,
        records=shown,
        num_seeds=len(shown) or (experiment.looks or (len(experiment.seeds),))[0],
        summaries=summarize_metrics(shown, experiment.measure, ranges, resolution),
        percent_ranges=ranges,
        point=point,
        points_tried=len(group_by_point(ended)),
        cells_tried=len(ended),
        num_tuning_seeds=sum(record.state not in LOST_STATES for record in selected),
        tuning_windows=find_tuning_windows(experiment, point, tuning),
        solve_times=measure_solve_times(experiment, arm, shown),
        published_values=experiment.published.get(arm.title, {}),
        unfinished_counts={state: sum(record.state == state for record in records) for state in UNFINISHED_STATES},
    )


def reported_metrics(measure: MeasureConfig) -> list[str]:
    """Return the metrics of the table, the primary metric first."""
    return list(dict.fromkeys([measure.primary_metric, *measure.report]))


def summarize_metrics(
    records: Sequence[CellRecord],
    measure: MeasureConfig,
    ranges: Mapping[str, PercentRange],
    resolution: float,
) -> dict[str, Summary]:
    """Summarize each reported metric over finished seeds; metrics without values are omitted.

    `ranges` are those of the metrics in percent, `resolution` is how much one test example changes an accuracy.
    """
    summaries = {}
    settled = sum(record.state in SETTLED_STATES for record in records)
    for metric in reported_metrics(measure):
        value_by_seed = finite_values_by_seed(metric, records)
        values = list(value_by_seed.values())
        threshold = measure.solved if metric == reported_metrics(measure)[0] else None
        errors = [
            record.errors[metric] for record in records if metric in record.errors and record.seed in value_by_seed
        ]
        summary = summarize_seeds(
            values,
            measure.metric_direction(metric),
            threshold,
            num_lost=settled - len(values),
            standard_error=errors[0] if errors else None,
            use_bootstrap=measure.interval == "bootstrap",
            value_range=ranges.get(metric),
            resolution=metric_resolution(metric, resolution, values),
        )
        if summary is not None:
            summaries[metric] = summary
    return summaries


def finite_values_by_seed(metric: str, records: Sequence[CellRecord]) -> dict[int, float]:
    """Return the value of each finished cell by seed, without missing and non-finite values."""
    values = {record.seed: record.metrics.get(metric, math.nan) for record in records if record.state == "done"}
    return {seed: value for seed, value in values.items() if math.isfinite(value)}
