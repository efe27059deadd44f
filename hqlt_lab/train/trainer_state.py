"""State of a run that a checkpoint holds besides weights and optimizer state, and how metrics are compared.

The state has a warning for each analysis of the model that failed (backends, probes or sizes).  An analysis does not
change the trained weights, so the run continues.
"""

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter

from hqlt_lab.errors import HqltError, StoreError, TrainingError, did_you_mean, format_names, join_sentences
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.redact import redact_secrets
from hqlt_lab.train.describe_failure import describe_failure
from hqlt_lab.train.interrupt import RunInterrupted

logger = logging.getLogger(__name__)

Metrics = dict[str, float]
MetricsCallback = Callable[[int, Metrics], None]  # called with (step, metrics)


@dataclass
class TrainerState:
    """State of a run.  Only plain values, so that checkpoints can be loaded with weights_only=True."""

    last: Metrics = field(default_factory=dict)  # metrics of the last validation
    best: Metrics = field(default_factory=dict)  # metrics of the validation that was best by measure.select
    finished: bool = False  # training is complete; only the test is left
    seconds: float = 0.0  # total
    training_seconds: float = 0.0  # without validation and saving
    notes: list[str] = field(default_factory=list)  # sentences for the message of the outcome
    warnings: list[str] = field(default_factory=list)  # analyses of the model that failed, one sentence each

    def update_best(self, metrics: Metrics, cell: Cell) -> bool:
        """Store the metrics of a validation.  Return whether it is the best so far."""
        self.last = metrics
        if self.best and not is_better(selection_value(metrics, cell), selection_value(self.best, cell), cell):
            return False
        self.best = metrics
        return True


class TrainingTimer:
    """Adds elapsed time to the state of a run: time in training steps, or other time."""

    def __init__(self, trainer_state: TrainerState) -> None:
        self.trainer_state, self.last_reading = trainer_state, perf_counter()

    def add_training_time(self) -> float:
        """Count the seconds since the previous call of either method as time in training steps, and return them."""
        elapsed = self._add_elapsed()
        self.trainer_state.training_seconds += elapsed
        return elapsed

    def add_other_time(self) -> None:
        """Count the seconds since the previous call of either method as time outside of training steps."""
        self._add_elapsed()

    def _add_elapsed(self) -> float:
        now = perf_counter()
        elapsed, self.last_reading = now - self.last_reading, now
        self.trainer_state.seconds += elapsed
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


def record_validation(trainer_state: TrainerState, cell: Cell, step: int, metrics: Metrics) -> bool:
    """Update the state with the metrics of a validation; the run is finished if it is solved or at its last step.

    Return whether the present weights have to be saved as the best ones.
    """
    improved = trainer_state.update_best(metrics, cell)
    if is_solved(metrics, cell):
        value, goal = selection_value(metrics, cell), cell.train.stop_at
        trainer_state.notes.append(f"solved at step {step}: {cell.measure.select} is {value:.4g} (stop_at {goal:.4g}).")
        trainer_state.finished = True
    trainer_state.finished |= step >= cell.train.steps
    return improved and (cell.train.keep == "best" or cell.train.report == "best_valid")


@contextmanager
def record_analysis_failure(
    trainer_state: TrainerState, analysis: str, *, is_before_training: bool = False
) -> Iterator[None]:
    """Turn an exception of an analysis into a warning of the run, once per message; the log gets the traceback.

    Before training, an HqltError is raised: it is about the settings, such as a backend that cannot run. Afterwards it
    would discard a trained model. A stop signal and a failure of the disk are always raised.
    """
    try:
        yield
    except (RunInterrupted, StoreError):
        raise
    except Exception as error:  # a user's component may raise anything
        if is_before_training and isinstance(error, HqltError):
            raise
        warning = f"{analysis} could not be computed: {describe_failure(error).why}"
        if warning not in trainer_state.warnings:
            trainer_state.warnings.append(warning)
            logger.error(redact_secrets(traceback.format_exc().rstrip()))
