"""What is drawn: which arms, in which colour.  An arm looks the same in every figure of a report.

Of many arms the baseline and the best are drawn; a figure never reads the folders of the others.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from hqlt_lab.experiment.experiment import Arm, Experiment
from hqlt_lab.report.figures.style import COLOURS, DASHES, FAINT, MARKERS
from hqlt_lab.report.rows import Row, reported
from hqlt_lab.report.words import between, counted
from hqlt_lab.study.record import Record

MOST_ARMS, MOST_SEEDS = 12, 20


class Look(NamedTuple):
    """How an arm is drawn."""

    color: str = FAINT
    marker: str = "o"
    linestyle: Any = "-"


@dataclass(frozen=True)
class Material:
    """An experiment, and what came of it."""

    experiment: Experiment
    rows: Sequence[Row]

    @cached_property
    def metric(self) -> str:
        """The one that decides."""
        return reported(self.experiment.measure)[0]

    @property
    def upwards(self) -> bool:
        """Whether more is better."""
        return self.experiment.measure.way(self.metric) == "maximize"

    @cached_property
    def arms(self) -> dict[str, Arm]:
        return {arm.title: arm for arm in self.experiment.arms}

    @cached_property
    def finished(self) -> list[Row]:
        """The arms with a result."""
        return [row for row in self.rows if not row.quoted and row.title in self.arms and row.done]

    @cached_property
    def drawn(self) -> list[Row]:
        """The baseline and the best, in the order of the file."""
        if not self.finished:
            return []
        baseline, *others = self.finished
        best = sorted(others, key=self.rank)[: MOST_ARMS - 1]
        return [row for row in self.finished if row is baseline or row in best]

    @cached_property
    def left_out(self) -> str:
        """In a sentence for the caption, or nothing."""
        rest = len(self.finished) - len(self.drawn)
        return f" Drawn are the baseline and the best of the others; {counted(rest, 'arm')} left out." if rest else ""

    @cached_property
    def looks(self) -> dict[str, Look]:
        """Three times as many arms as colours can be told apart: by the line, too."""
        made = {}
        for number, row in enumerate(self.drawn):
            turn, place = divmod(number, len(COLOURS))
            marker = MARKERS[(place + 2 * turn) % len(MARKERS)]  # points have no line to be told apart by
            made[row.title] = Look(COLOURS[place], marker, DASHES[turn % len(DASHES)])
        return made

    @cached_property
    def in_a_world(self) -> bool:
        """Whether agents learned, in steps of the world."""
        arm = self.experiment.arms[0]
        return bool(self.finished) and self.experiment.cell(arm, self.finished[0].point or {}, 0).agent is not None

    @property
    def steps(self) -> str:
        """What is counted along the curves."""
        return "steps in the world" if self.in_a_world else "optimiser steps"

    def look(self, row: Row) -> Look:
        return self.looks.get(row.title, Look())

    def rank(self, row: Row) -> float:
        """Smaller is better; without a value last."""
        value = self.value(row)
        return math.inf if value is None else -value if self.upwards else value

    def value(self, row: Row) -> float | None:
        """What stands for the arm's seeds."""
        summary = row.summaries.get(self.metric)
        return getattr(summary, self.experiment.measure.statistic) if summary else None

    def task(self, row: Row) -> Mapping[str, Any]:
        """What the arm was taught, with every default."""
        return self.experiment.cell(self.arms[row.title], row.point or {}, self.experiment.seeds[0]).task


def seeds_of(row: Row) -> list[Record]:
    """The finished seeds of the chosen point, as many as a figure reads."""
    return row.done[:MOST_SEEDS]


def seeds_told(rows: Sequence[Row]) -> str:
    """2 seeds, 1 to 3 seeds"""
    counts = [len(seeds_of(row)) for row in rows]
    told = between(min(counts), max(counts))
    return f"{told} {'seed' if max(counts) == 1 else 'seeds'}"
