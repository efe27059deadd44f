"""How long it will still take: the steps that each arm has left, at the pace of those that it has taken.

Arms differ in what a step costs, and whoever resumes a study begins anywhere in it: an arm goes by its own pace, also
that of its cells that were done before, and only one of which nothing is known by that of all others.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hqlt_lab.study.record import Record


class Work(NamedTuple):
    """What a cell has to do."""

    arm: str
    steps: int


@dataclass
class Spent:
    """On steps that were taken."""

    steps: float = 0.0
    seconds: float = 0.0  # of workers


@dataclass
class Running:
    """A cell under way."""

    work: Work
    since: float
    first: int | None = None  # the first step that was told of: a resumed cell does not begin at 0
    step: int = 0

    def spent(self, now: float) -> Spent:
        return Spent(self.step - (self.first or 0), now - self.since)

    @property
    def left(self) -> Work:
        return self.work._replace(steps=self.work.steps - self.step)


@dataclass
class Pace:
    """Counts steps as they are told; times are seconds of any one clock."""

    waiting: dict[str, Work]  # by key, of cells that nobody trains yet
    workers: int
    later: list[Work] = field(default_factory=list)  # of cells that searches will lead to
    before: dict[str, Spent] = field(default_factory=dict)  # by arm, on cells that have ended
    running: dict[str, Running] = field(default_factory=dict)

    def begin(self, key: str, work: Work, now: float | None = None) -> None:
        if self.waiting.pop(key, None) is None and self.later:
            arms = [one.arm for one in self.later]
            self.later.pop(arms.index(work.arm) if work.arm in arms else -1)
        self.running[key] = Running(work, time.monotonic() if now is None else now)

    def advance(self, key: str, step: int) -> None:
        one = self.running[key]
        one.first, one.step = step if one.first is None else one.first, step

    def end(self, key: str, record: Record, now: float | None = None) -> Work:
        """The cell's attempt is over; what it leaves to do.  Of cells that others train, no step was told."""
        one = self.running.pop(key)
        if one.first is None:
            add(self.before, spent_on([record]))
        else:
            add(self.before, {one.work.arm: one.spent(time.monotonic() if now is None else now)})
        return one.left

    def remaining(self, now: float | None = None) -> float | None:
        """Seconds until everything is done, or None before there is anything to go by."""
        now = time.monotonic() if now is None else now
        spent = {arm: replace(known) for arm, known in self.before.items()}
        for one in self.running.values():
            if one.first is not None:
                add(spent, {one.work.arm: one.spent(now)})
        everyone = Spent(sum(one.steps for one in spent.values()), sum(one.seconds for one in spent.values()))
        if everyone.steps <= 0:
            return None

        def seconds(work: Work) -> float:
            known = spent.get(work.arm, everyone)
            known = known if known.steps > 0 else everyone
            return work.steps * known.seconds / known.steps

        left = [seconds(one.left) for one in self.running.values()]
        rest = sum(map(seconds, (*self.waiting.values(), *self.later)))
        return max([(sum(left) + rest) / self.workers, *left])


def add(spent: dict[str, Spent], more: Mapping[str, Spent]) -> None:
    """Count by arm what was spent."""
    for arm, one in more.items():
        known = spent.setdefault(arm, Spent())
        known.steps, known.seconds = known.steps + one.steps, known.seconds + one.seconds


def spent_on(records: Iterable[Record]) -> dict[str, Spent]:
    """By arm, on cells that are done."""
    found: dict[str, Spent] = {}
    for record in records:
        if record.state == "done" and record.step and record.seconds:
            add(found, {record.arm: Spent(record.step, record.seconds)})
    return found
