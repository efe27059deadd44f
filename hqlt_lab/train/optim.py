"""AdamW with its parameter groups, and the learning rate schedule: linear warm-up, then cosine decay.

Weight decay:

    decay: all         every parameter decays
    decay: matrices    vectors (norms, biases, gates) do not decay
    no_decay = True    a parameter with this attribute never decays

Learning rate:

    step s < warmup       peak (s + 1) / (warmup + 1)                             never 0, so that no step is wasted
    s = warmup            peak
    cosine, s < horizon   peak (floor + (1 - floor) (1 + cos(pi done)) / 2),    done = (s - warmup) / (horizon - warmup)
    s >= horizon          peak floor
    constant              peak

The first step has number 0.  The horizon defaults to the number of steps, so that the last step is just above the
floor.
"""

import math
from typing import Any

from torch import Tensor, nn
from torch.optim import AdamW

from hqlt_lab.experiment.run_settings import TrainConfig


def build_adamw(model: nn.Module, train: TrainConfig) -> AdamW:
    """Return the optimizer of a model's parameters."""
    beta1, beta2 = train.betas
    return AdamW(parameter_groups(model, train), lr=train.lr, betas=(beta1, beta2), eps=train.adam_eps)


def parameter_groups(model: nn.Module, train: TrainConfig) -> list[dict[str, Any]]:
    """Return the groups of parameters with and without weight decay, leaving out an empty group."""
    with_decay = [parameter for parameter in model.parameters() if has_weight_decay(parameter, train)]
    without_decay = [parameter for parameter in model.parameters() if not has_weight_decay(parameter, train)]
    groups = [
        {"params": with_decay, "weight_decay": train.weight_decay},
        {"params": without_decay, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def has_weight_decay(parameter: Tensor, train: TrainConfig) -> bool:
    """Return whether weight decay applies to this parameter."""
    return not getattr(parameter, "no_decay", False) and (train.decay == "all" or parameter.ndim >= 2)


def lr_factor(train: TrainConfig, step: int) -> float:
    """Return the factor of the peak learning rate at this step."""
    if step < train.warmup:
        return (step + 1) / (train.warmup + 1)
    if train.schedule == "constant":
        return 1.0
    decay_steps = max(1, (train.lr_horizon or train.steps) - train.warmup)
    done = min(1.0, (step - train.warmup) / decay_steps)
    return train.lr_floor + (1 - train.lr_floor) * (1 + math.cos(math.pi * done)) / 2
