"""Stop before the weights are lost: a loss or a gradient that is no number ends the run, and its batch is kept."""

import math
from pathlib import Path

import torch

from hqlt_lab.errors import TrainingError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.tasks._base import Task
from hqlt_lab.train.checkpoints import save

FILE = "diverged.pt"


class Diverged(TrainingError):
    """The run cannot go on, and would not if it were repeated."""

    def __init__(self, step: int, what: str, value: float) -> None:
        super().__init__(f"stopped at step {step}: the {what} is {value}. The batch is in {FILE}.")
        self.step = step


def guard(step: int, loss: float, gradient_norm: float, overflow_is_normal: bool) -> None:
    """Raise unless both are finite; in float16, gradients overflow now and then and the scaler skips the step."""
    if not math.isfinite(loss):
        raise Diverged(step, "loss", loss)
    if not math.isfinite(gradient_norm) and not overflow_is_normal:
        raise Diverged(step, "gradient norm", gradient_norm)


def keep_batch(folder: Path, cell: Cell, task: Task, step: int, weights: dict[str, torch.Tensor]) -> None:
    """Everything that repeats the failing step, loadable with weights_only=True."""
    rows = cell.train.batch_size
    batch = task.examples("train", cell.seed, step * rows, rows)
    save({"step": step, "seed": cell.seed, **batch._asdict(), "model": weights}, folder / FILE)
