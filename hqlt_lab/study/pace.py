"""How long it will still take: steps that are left, at the pace of the steps that were taken."""

import time
from dataclasses import dataclass, field


@dataclass
class Running:
    """A cell under way."""

    steps: int  # it has to take
    since: float
    first: int | None = None  # the first step that was told of: a resumed cell does not begin at 0
    step: int = 0


@dataclass
class Pace:
    """Counts steps as they are told; times are seconds of any one clock."""

    waiting: dict[str, int]  # key -> steps, of cells that nobody trains yet
    workers: int
    later: list[int] = field(default_factory=list)  # steps of cells that searches will lead to
    running: dict[str, Running] = field(default_factory=dict)
    taken: float = 0.0  # steps of cells that have ended
    spent: float = 0.0  # seconds of workers on them

    def begin(self, key: str, steps: int, now: float | None = None) -> None:
        if self.waiting.pop(key, None) is None and self.later:
            self.later.pop()
        self.running[key] = Running(steps, time.monotonic() if now is None else now)

    def advance(self, key: str, step: int) -> None:
        one = self.running[key]
        one.first, one.step = step if one.first is None else one.first, step

    def end(self, key: str, now: float | None = None) -> int:
        """The cell's attempt is over; how many steps it did not take."""
        one = self.running.pop(key)
        self.taken += one.step - (one.first or 0)
        self.spent += (time.monotonic() if now is None else now) - one.since
        return one.steps - one.step

    def remaining(self, now: float | None = None) -> float | None:
        """Seconds until everything is done, or None before there is anything to go by."""
        now = time.monotonic() if now is None else now
        taken = self.taken + sum(one.step - (one.first or 0) for one in self.running.values())
        spent = self.spent + sum(now - one.since for one in self.running.values())
        if taken <= 0:
            return None
        left = [one.steps - one.step for one in self.running.values()]
        steps = max([(sum(self.waiting.values()) + sum(self.later) + sum(left)) / self.workers, *left])
        return steps * spent / taken
