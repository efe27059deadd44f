"""Gradient norm, clipping, and the end of a run whose loss or gradient is not finite.

A loss or gradient norm that is NaN or infinite ends the run before the weights are updated, and the batch is saved.
Supervised and reinforcement learning share this.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from hqlt_lab.errors import TrainingError
from hqlt_lab.train.checkpoints.checkpoint_io import write_checkpoint

DIVERGED_FILE = "diverged.pt"


class DivergenceError(TrainingError):
    """The loss or the gradient norm is not finite.  The same cell would diverge again."""

    def __init__(self, step: int, quantity: str, value: float) -> None:
        super().__init__(f"stopped at step {step}: the {quantity} is {value}. The batch is in {DIVERGED_FILE}.")
        self.step = step


def raise_if_not_finite(step: int, loss: float, gradient_norm: float, allow_overflow: bool) -> None:
    """Raise DivergenceError if the loss or gradient norm is NaN or infinite.

    `allow_overflow` is for float16, where gradients occasionally overflow and the gradient scaler skips the step.
    """
    if not math.isfinite(loss):
        raise DivergenceError(step, "loss", loss)
    if not math.isfinite(gradient_norm) and not allow_overflow:
        raise DivergenceError(step, "gradient norm", gradient_norm)


def compute_gradient_norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    """Return the norm of all gradients together; of all shards with sharded parameters."""
    norm = get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float | None, norm: Tensor) -> None:
    """Scale the gradients to at most this norm (`train.clip`); `norm` is their present one."""
    if max_norm is not None:
        clip_grads_with_norm_(parameters, max_norm, norm)


def write_failing_step(folder: Path, content: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    """Write diverged.pt, which has all that is needed to repeat the failing step; loadable with weights_only=True."""
    write_checkpoint({**content, "model": dict(weights)}, folder / DIVERGED_FILE)
