"""Progress of a run: what a checkpoint holds besides weights and optimizer state, and how metrics are compared."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

from hqlt_lab.errors import TrainingError, did_you_mean, format_names, join_sentences
from hqlt_lab.experiment.cell import Cell

Metrics = dict[str, float]
MetricsCallback = Callable[[int, Metrics], None]  # called with (step, metrics)


@dataclass
class Progress:
    """State of a run.  Only plain values, so that checkpoints can be loaded with weights_only=True."""

    last: Metrics = field(default_factory=dict)  # metrics of the last validation
    best: Metrics = field(default_factory=dict)  # metrics of the validation that was best by measure.select
    finished: bool = False  # training is complete; only the test is left
    seconds: float = 0.0  # total
    learning: float = 0.0  # seconds in training steps, without validation and saving
    notes: list[str] = field(default_factory=list)  # sentences for the message of the outcome
    warnings: list[str] = field(default_factory=list)  # analyses of the model that failed, one sentence each

    def update_best(self, metrics: Metrics, cell: Cell) -> bool:
        """Store the metrics of a validation.  Return whether it is the best so far."""
        self.last = metrics
        if self.best and not is_better(selection_value(metrics, cell), selection_value(self.best, cell), cell):
            return False
        self.best = metrics
        return True


class LapTimer:
    """Adds elapsed time to the progress of a run."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.lap_start = progress, perf_counter()

    def end_lap(self, learning: bool) -> float:
        """Add the seconds since the last lap to the progress, as training or other time, and return them."""
        now = perf_counter()
        elapsed, self.lap_start = now - self.lap_start, now
        self.progress.seconds += elapsed
        self.progress.learning += elapsed if learning else 0
        return elapsed


def selection_value(metrics: Metrics, cell: Cell) -> float:
    """Return the value of `measure.select`.  Raise TrainingError if it was not measured."""
    name = cell.measure.select
    if name not in metrics:
        raise TrainingError(
            join_sentences(
                f"measure.select: there is no metric {name!r}.",
                did_you_mean(name, metrics),
                f"Measured: {format_names(metrics)}.",
            )
        )
    return metrics[name]


def is_better(candidate: float, reference: float, cell: Cell) -> bool:
    """Return whether a value is strictly better than another in the direction of `measure.direction`."""
    return candidate > reference if cell.measure.direction == "maximize" else candidate < reference


def is_solved(metrics: Metrics, cell: Cell) -> bool:
    """Return whether the selection metric has reached `train.stop_at`."""
    goal = cell.train.stop_at
    return goal is not None and not is_better(goal, selection_value(metrics, cell), cell)


def record_validation(progress: Progress, cell: Cell, step: int, metrics: Metrics) -> bool:
    """Update the progress with the metrics of a validation; the run is finished if it is solved or at its last step.

    Return whether the present weights have to be saved as the best ones.
    """
    improved = progress.update_best(metrics, cell)
    if is_solved(metrics, cell):
        value, goal = selection_value(metrics, cell), cell.train.stop_at
        progress.notes.append(f"solved at step {step}: {cell.measure.select} is {value:.4g} (stop_at {goal:.4g}).")
        progress.finished = True
    progress.finished |= step >= cell.train.steps
    return improved and (cell.train.keep == "best" or cell.train.report == "best_valid")
