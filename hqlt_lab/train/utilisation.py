"""Model FLOPs utilisation: how much of what the GPUs could compute the model's products are.

    mfu = 100 * tokens per second * FLOPs per token / (GPUs * peak FLOP/s)

FLOPs are those of `sizes`, forward and backward once: what is computed again, and communication, only make it smaller.
The peak is the makers' for bfloat16, so that nothing is said of other precisions and of chips that are not known.
"""

import torch

from hqlt_lab.model.roofline import CHIPS
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.model.sizes import sizes
from hqlt_lab.train.ranks import world

A100, H100 = CHIPS
NAMES = {"A100": A100, "H100 80GB HBM3": H100}  # what drivers call those; slower H100s have other memories
HALF = (torch.bfloat16, torch.float16)


def peak(name: str) -> float | None:
    """FLOP/s of the chip that its driver calls so; None where it is not known."""
    return next((chip.flops for known, chip in NAMES.items() if known in name), None)


def full_speed(model: SequenceModel, length: int, device: torch.device, dtype: torch.dtype) -> float | None:
    """Tokens per second if all GPUs computed the model's products, at their peak, and nothing else; None: not known."""
    most = peak(torch.cuda.get_device_name(device)) if device.type == "cuda" and dtype in HALF else None
    return None if most is None else tokens_at(most * world(), model, length)


def tokens_at(flops: float, model: SequenceModel, length: int) -> float:
    """Tokens per second that so many FLOP/s can train on, in rows of this length."""
    return flops * length / sizes(model, length).total.training
