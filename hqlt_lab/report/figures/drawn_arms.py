"""Data shared by all figures: which arms are drawn, and the line style of each, which is the same in every figure.

With many arms, only the baseline and the best arms are drawn; the folders of the others are not read.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from hqlt_lab.experiment.load_experiment import Arm, Experiment
from hqlt_lab.formatting import pluralize_count
from hqlt_lab.report.arm_rows import Row, reported_metrics
from hqlt_lab.report.figures.style import LINE_STYLES, MARKERS, MUTED, PALETTE
from hqlt_lab.report.value_formatting import format_range
from hqlt_lab.study.ledger.cell_record import CellRecord

MAX_ARMS, MAX_SEEDS = 12, 20


class LineStyle(NamedTuple):
    """Color, marker and line style of an arm."""

    color: str = MUTED
    marker: str = "o"
    linestyle: Any = "-"


@dataclass(frozen=True)
class DrawnArms:
    """An experiment with its rows, and what figures derive from them."""

    experiment: Experiment
    rows: Sequence[Row]

    @cached_property
    def metric(self) -> str:
        """The primary metric."""
        return reported_metrics(self.experiment.measure)[0]

    @property
    def higher_is_better(self) -> bool:
        return self.experiment.measure.metric_direction(self.metric) == "maximize"

    @cached_property
    def arms_by_title(self) -> dict[str, Arm]:
        return {arm.title: arm for arm in self.experiment.arms}

    @cached_property
    def finished_rows(self) -> list[Row]:
        """Rows of arms with at least one finished cell."""
        return [
            row for row in self.rows if not row.is_quoted and row.title in self.arms_by_title and row.finished_records
        ]

    @cached_property
    def drawn_rows(self) -> list[Row]:
        """Rows that are drawn: the baseline and the best others, in the order of the file."""
        if not self.finished_rows:
            return []
        baseline, *other_rows = self.finished_rows
        best = sorted(other_rows, key=self.sort_key)[: MAX_ARMS - 1]
        return [row for row in self.finished_rows if row is baseline or row in best]

    @cached_property
    def omitted_note(self) -> str:
        """Sentence for captions on arms that are not drawn; empty if all are."""
        num_omitted = len(self.finished_rows) - len(self.drawn_rows)
        return (
            f" Only the baseline and the best other arms are shown; {pluralize_count(num_omitted, 'arm')} omitted."
            if num_omitted
            else ""
        )

    @cached_property
    def line_styles(self) -> dict[str, LineStyle]:
        """Line style of each drawn arm, by title: colors repeat with other dash patterns and markers."""
        styles: dict[str, LineStyle] = {}
        for number, row in enumerate(self.drawn_rows):
            cycle, index = divmod(number, len(PALETTE))
            # in scatter plots only the marker distinguishes arms of the same color
            marker = MARKERS[(index + 2 * cycle) % len(MARKERS)]
            styles[row.title] = LineStyle(PALETTE[index], marker, LINE_STYLES[cycle % len(LINE_STYLES)])
        return styles

    @cached_property
    def has_agent(self) -> bool:
        """Whether the study trains RL agents, so that steps are environment steps."""
        arm = self.experiment.arms[0]
        return (
            bool(self.finished_rows)
            and self.experiment.make_cell(arm, self.finished_rows[0].point or {}, 0).agent is not None
        )

    @property
    def step_axis_label(self) -> str:
        """Label of the step axis of learning curves."""
        return "environment steps" if self.has_agent else "optimizer steps"

    def line_style(self, row: Row) -> LineStyle:
        return self.line_styles.get(row.title, LineStyle())

    def sort_key(self, row: Row) -> float:
        """Return a key that sorts rows from best to worst, rows without a value last."""
        value = self.row_value(row)
        return math.inf if value is None else -value if self.higher_is_better else value

    def row_value(self, row: Row) -> float | None:
        """Return the arm's primary metric, aggregated over seeds by `measure.statistic`; None without a value."""
        summary = row.summaries.get(self.metric)
        return getattr(summary, self.experiment.measure.statistic) if summary else None

    def task_config(self, row: Row) -> Mapping[str, Any]:
        """Return the task settings of an arm, including defaults."""
        return self.experiment.make_cell(self.arms_by_title[row.title], row.point or {}, self.experiment.seeds[0]).task


def drawn_records(row: Row) -> list[CellRecord]:
    """Return the finished cells of a row's selected point, at most MAX_SEEDS."""
    return row.finished_records[:MAX_SEEDS]


def format_seed_counts(rows: Sequence[Row]) -> str:
    """Return e.g. "2 seeds" or "1 to 3 seeds"."""
    counts = [len(drawn_records(row)) for row in rows]
    return f"{format_range(min(counts), max(counts))} {'seed' if max(counts) == 1 else 'seeds'}"
