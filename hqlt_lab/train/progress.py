"""How far a run has come: what a checkpoint holds besides weights and optimiser."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

from hqlt_lab.errors import TrainingError, did_you_mean, listed
from hqlt_lab.experiment.cell import Cell

Metrics = dict[str, float]
Record = Callable[[int, Metrics], None]  # what is told of a run, and at which step


@dataclass
class Progress:
    """Numbers and words only, so that a checkpoint can be read without trusting it."""

    last: Metrics = field(default_factory=dict)  # of the last validation
    best: Metrics = field(default_factory=dict)  # of the one that was best by measure.select
    finished: bool = False  # nothing is left but the test
    seconds: float = 0.0  # in all
    learning: float = 0.0  # of these in steps, not in validation or saving
    notes: list[str] = field(default_factory=list)  # what the outcome's message will say

    def improve(self, metrics: Metrics, cell: Cell) -> bool:
        """Take in a validation; whether it is the best so far."""
        self.last = metrics
        if self.best and not better(selected(metrics, cell), selected(self.best, cell), cell):
            return False
        self.best = metrics
        return True


class Clock:
    """Adds the time that passes to a run's progress."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.mark = progress, perf_counter()

    def lap(self, learning: bool) -> float:
        """Count the seconds since the last lap, as learning or as something else."""
        now = perf_counter()
        passed, self.mark = now - self.mark, now
        self.progress.seconds += passed
        self.progress.learning += passed if learning else 0
        return passed


def selected(metrics: Metrics, cell: Cell) -> float:
    """The number that is selected on."""
    name = cell.measure.select
    if name not in metrics:
        raise TrainingError(
            f"measure.select: no metric is called {name!r}.{did_you_mean(name, metrics)} Measured: {listed(metrics)}."
        )
    return metrics[name]


def better(new: float, old: float, cell: Cell) -> bool:
    """Whether the new number is strictly better."""
    return new > old if cell.measure.direction == "maximize" else new < old


def solved(metrics: Metrics, cell: Cell) -> bool:
    """Whether the selected number is as good as `stop_at`."""
    goal = cell.train.stop_at
    return goal is not None and not better(goal, selected(metrics, cell), cell)
