"""One row per arm, at the tuned point it is judged by.

A listed grid trains every point on every seed: the row shows the seeds of the chosen point.  A searched range has cells
that only serve to find the point (`counts` is False): those choose, the others are shown.  Only finished cells give
numbers; what was lost on the way is counted.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hqlt_lab.experiment.cell import digest
from hqlt_lab.experiment.experiment import Experiment
from hqlt_lab.experiment.plan import points
from hqlt_lab.experiment.settings import MeasureConfig
from hqlt_lab.report.differences import Difference, baselines_of, with_differences
from hqlt_lab.report.protocols import alike
from hqlt_lab.report.statistics import Summary, summarise
from hqlt_lab.study.choose import by_point, chosen_point
from hqlt_lab.study.record import SETTLED, Record

UNFINISHED = ("waiting", "running", "failed", "diverged", "pruned")
SPENT = ("done", "diverged", "pruned")  # a failed cell says nothing about its point


@dataclass(frozen=True, kw_only=True)
class Row:
    """An arm and what came of it, or a result that another paper prints."""

    title: str
    quoted: bool = False  # from another paper: shown, never run
    records: Sequence[Record] = ()  # the cells of the chosen point
    seeds: int = 0  # how many such cells there will be
    summaries: Mapping[str, Summary] = field(default_factory=dict)  # by reported metric
    differences: Mapping[str, Difference] = field(default_factory=dict)  # to the baseline, by reported metric
    point: Mapping[str, Any] | None = None  # tuned path -> chosen value; None: nothing to choose from yet
    points: int = 0  # tuned points that were tried
    cells: int = 0  # and cells that were spent on them
    published: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # metric -> best, median, mad
    unfinished: Mapping[str, int] = field(default_factory=dict)  # state -> cells of the arm, tuning included

    @property
    def done(self) -> list[Record]:
        return [record for record in self.records if record.state == "done"]

    @property
    def in_vain(self) -> bool:
        """Whether all its cells have ended, and none with a result."""
        more = sum(self.unfinished.get(state, 0) for state in ("waiting", "running"))
        return bool(self.records) and not self.done and not more

    def lost(self, metric: str) -> set[int]:
        """Seeds that ended without a number."""
        return {record.seed for record in self.records if record.state in SETTLED} - self.by_seed(metric).keys()

    def by_seed(self, metric: str) -> dict[int, float]:
        """What each finished seed reached."""
        return finite(metric, self.done)

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
        return statistics.median([record.tokens_per_second for record in self.done] or [0.0])

    @property
    def steps(self) -> tuple[int, int] | None:
        """The fewest and the most steps that a finished seed trained."""
        steps = [record.step for record in self.done]
        return (min(steps), max(steps)) if steps else None


def rows_of(experiment: Experiment, records: Sequence[Record]) -> list[Row]:
    """The arms as the file orders them, then what it quotes."""
    by_arm: dict[str, list[Record]] = {}
    for record in alike(records):
        by_arm.setdefault(record.arm, []).append(record)
    arms = [row_of(experiment, arm.title, by_arm.get(arm.title, [])) for arm in experiment.arms]
    arms = with_differences(arms, baselines_of(experiment.arms), experiment.measure, step_in(experiment))
    quoted = [Row(title=str(name), quoted=True, published=values) for name, values in experiment.quoted.items()]
    return arms + quoted


def step_in(experiment: Experiment) -> float:
    """What one example of the test is worth at most, in percent: the chance level of an accuracy is 50 % or less."""
    if not experiment.base.get("task"):
        return 0.0  # a study that is known by its folder alone
    cell = experiment.cell(experiment.arms[0], next(points(experiment.tune)), experiment.seeds[0])
    return 200 / int(cell.task.get("eval_size", 200))


def row_of(experiment: Experiment, title: str, records: Sequence[Record]) -> Row:
    """One arm, from its own records."""
    choosing = [record for record in records if not record.counts] or records
    point = chosen_point(choosing, experiment.measure) if experiment.tune else {}
    shown = [record for record in records if record.counts and digest(record.point) == digest(point)]
    spent = [record for record in choosing if record.state in SPENT]
    return Row(
        title=title,
        records=shown,
        seeds=len(shown) or len(experiment.seeds),
        summaries=summaries(shown, experiment.measure),
        point=point,
        points=len(by_point(spent)),
        cells=len(spent),
        published=experiment.published.get(title, {}),
        unfinished={state: sum(record.state == state for record in records) for state in UNFINISHED},
    )


def reported(measure: MeasureConfig) -> list[str]:
    """The metrics of the table, the one that decides first."""
    return list(dict.fromkeys([measure.first, *measure.report]))


def summaries(records: Sequence[Record], measure: MeasureConfig) -> dict[str, Summary]:
    """Each reported metric over the finished seeds."""
    made = {}
    settled = sum(record.state in SETTLED for record in records)
    for metric in reported(measure):
        found = finite(metric, records)
        values = list(found.values())
        threshold = measure.solved if metric == reported(measure)[0] else None
        errors = [record.errors[metric] for record in records if metric in record.errors and record.seed in found]
        summary = summarise(
            values,
            measure.way(metric),
            threshold,
            lost=settled - len(values),
            error=errors[0] if errors else None,
            resample=measure.interval == "bootstrap",
        )
        if summary is not None:
            made[metric] = summary
    return made


def finite(metric: str, records: Sequence[Record]) -> dict[int, float]:
    """Seed -> value of every finished cell; a value that is no number is as good as lost."""
    told = {record.seed: record.metrics.get(metric, math.nan) for record in records if record.state == "done"}
    return {seed: value for seed, value in told.items() if math.isfinite(value)}
