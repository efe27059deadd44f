"""Estimate of the time that a study still needs.

The remaining steps of each arm are multiplied by the measured time per step of that arm, because a step costs more in
some arms than in others.  Cells that finished before the study was resumed count too.  An arm without any measurement
uses the average of all arms.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hqlt_lab.study.ledger.cell_record import CellRecord


class Workload(NamedTuple):
    """An arm and a number of training steps."""

    arm: str
    steps: int


@dataclass
class StepTally:
    """Number of trained steps, and the worker seconds that they took."""

    steps: float = 0.0
    seconds: float = 0.0


@dataclass
class RunningCell:
    """Progress of a cell that is being trained."""

    workload: Workload
    started_at: float
    first_step: int | None = None  # the first step that was reported: a resumed cell does not begin at 0
    step: int = 0

    def tally_steps(self, now: float) -> StepTally:
        return StepTally(self.step - (self.first_step or 0), now - self.started_at)

    @property
    def remaining_workload(self) -> Workload:
        return self.workload._replace(steps=self.workload.steps - self.step)


@dataclass
class EtaEstimator:
    """Counts the steps that cells report; all times are seconds of the same clock."""

    waiting: dict[str, Workload]  # by key, of cells that no worker trains yet
    workers: int
    pending: list[Workload] = field(default_factory=list)  # of final cells whose search is not finished
    past_tallies: dict[str, StepTally] = field(default_factory=dict)  # by arm, on cells that have ended
    running: dict[str, RunningCell] = field(default_factory=dict)

    def start_cell(self, key: str, workload: Workload, now: float | None = None) -> None:
        if self.waiting.pop(key, None) is None and self.pending:
            arms = [pending_workload.arm for pending_workload in self.pending]
            self.pending.pop(arms.index(workload.arm) if workload.arm in arms else -1)
        self.running[key] = RunningCell(workload, time.monotonic() if now is None else now)

    def advance_cell(self, key: str, step: int) -> None:
        cell = self.running[key]
        cell.first_step, cell.step = step if cell.first_step is None else cell.first_step, step

    def end_cell(self, key: str, record: CellRecord, now: float | None = None) -> Workload:
        """Stop counting a cell whose attempt has ended, and return the steps that it has left.

        A cell trained by another process reports no steps, so its steps are taken from its record.
        """
        cell = self.running.pop(key)
        if cell.first_step is None:
            add_tallies(self.past_tallies, sum_tallies_by_arm([record]))
        else:
            tally = cell.tally_steps(time.monotonic() if now is None else now)
            add_tallies(self.past_tallies, {cell.workload.arm: tally})
        return cell.remaining_workload

    def estimate_remaining(self, now: float | None = None) -> float | None:
        """Return the seconds until all cells are finished, or None before the first measurement."""
        now = time.monotonic() if now is None else now
        measured = {arm: replace(tally) for arm, tally in self.past_tallies.items()}
        for cell in self.running.values():
            if cell.first_step is not None:
                add_tallies(measured, {cell.workload.arm: cell.tally_steps(now)})
        overall = StepTally(
            sum(tally.steps for tally in measured.values()),
            sum(tally.seconds for tally in measured.values()),
        )
        if overall.steps <= 0:
            return None

        def estimate_seconds(workload: Workload) -> float:
            tally = measured.get(workload.arm, overall)
            tally = tally if tally.steps > 0 else overall
            return workload.steps * tally.seconds / tally.steps

        running_seconds = [estimate_seconds(cell.remaining_workload) for cell in self.running.values()]
        waiting_seconds = sum(map(estimate_seconds, (*self.waiting.values(), *self.pending)))
        return max([(sum(running_seconds) + waiting_seconds) / self.workers, *running_seconds])


def add_tallies(totals: dict[str, StepTally], increments: Mapping[str, StepTally]) -> None:
    """Add steps and seconds to the totals of each arm, in place."""
    for arm, increment in increments.items():
        total = totals.setdefault(arm, StepTally())
        total.steps, total.seconds = total.steps + increment.steps, total.seconds + increment.seconds


def sum_tallies_by_arm(records: Iterable[CellRecord]) -> dict[str, StepTally]:
    """Sum the steps and seconds of all finished cells, by arm."""
    totals: dict[str, StepTally] = {}
    for record in records:
        if record.state == "done" and record.step and record.seconds:
            add_tallies(totals, {record.arm: StepTally(record.step, record.seconds)})
    return totals
