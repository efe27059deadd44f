"""Scores of a test of the battery: one per metric of its experiment, from the report of its study.

    normalized = (score - chance) / (100 - chance) * 100          0 is chance, 100 perfect

A score of sequences of some lengths also has these lengths, relative to the longest ones in training.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from hqlt_lab.report.arm_rows import reported_metrics
from hqlt_lab.report.stats.summary import count_solved
from hqlt_lab.report.study_report import Report
from hqlt_lab.report.wording.caveats import chance_levels
from hqlt_lab.rundir.cell_state import SETTLED_STATES

LENGTH_SUFFIX = re.compile(r"/length_(\d+)(?:_(\d+))?$")


@dataclass(frozen=True, kw_only=True)
class ProfileScore:
    """One metric of a test, over its seeds."""

    test: str
    metric: str
    mean: float | None = None  # in percent; None: no seed has finished
    low: float | None = None  # 95 % interval of the mean over seeds; None with fewer than two
    high: float | None = None
    values: tuple[float, ...] = ()  # in percent, one per finished seed
    chance: float = 0.0  # in percent
    threshold: float | None = None  # from which a seed has solved the test
    solved: int = 0  # number of seeds that have
    ended: int = 0  # number of seeds that have ended, also without a result
    seeds: int = 0  # planned number
    lengths: tuple[int, int] | None = None  # smallest and largest test length of this metric; None: of all
    trained_length: int | None = None  # longest in training; None: the task has no lengths
    state_bytes: int = 0  # of the memories, after the longest training sequence
    unfinished: Mapping[str, int] = field(default_factory=dict)  # state -> number of cells

    @property
    def label(self) -> str:
        """Name of the test with the lengths, such as "parity, length 41 to 128"."""
        name = self.test.replace("_", " ")
        return name if self.lengths is None else f"{name}, length {self.lengths[0]} to {self.lengths[1]}"

    @property
    def relative_length(self) -> float | None:
        """Longest test length of this metric as a multiple of the longest one in training."""
        return self.lengths[1] / self.trained_length if self.lengths and self.trained_length else None

    @property
    def is_longer(self) -> bool:
        """Whether the sequences are longer than in training."""
        return self.relative_length is not None and self.relative_length > 1

    def normalize(self, value: float | None) -> float | None:
        """Return a value of the metric on the scale where 0 is chance and 100 perfect."""
        return None if value is None else (value - self.chance) / (100 - self.chance) * 100

    @property
    def normalized(self) -> float | None:
        return self.normalize(self.mean)

    @property
    def normalized_values(self) -> list[float]:
        return [value for value in map(self.normalize, self.values) if value is not None]


def score_test(test: str, report: Report) -> list[ProfileScore]:
    """Return the scores of a test's study, one per reported metric."""
    experiment, row = report.experiment, report.rows[0]
    scores = []
    for metric in reported_metrics(experiment.measure):
        summary, values = row.summaries.get(metric), list(row.values_by_seed(metric).values())
        threshold = experiment.measure.solved
        match = LENGTH_SUFFIX.search(metric)
        trained = experiment.base["task"].get("train_length")
        scores.append(
            ProfileScore(
                test=test,
                metric=metric,
                mean=summary.mean if summary else None,
                low=summary.low if summary else None,
                high=summary.high if summary else None,
                values=tuple(values),
                chance=chance_levels(experiment, report.rows, metric)[0] or 0.0,
                threshold=threshold,
                solved=0 if threshold is None else count_solved(values, threshold, "maximize"),
                ended=sum(record.state in SETTLED_STATES for record in row.records),
                seeds=row.num_seeds,
                lengths=(int(match[1]), int(match[2] or match[1])) if match else None,
                trained_length=trained[1] if trained else None,
                state_bytes=row.state_bytes,
                unfinished={state: count for state, count in row.unfinished_counts.items() if count},
            )
        )
    return scores
