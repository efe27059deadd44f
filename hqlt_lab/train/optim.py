"""AdamW with its parameter groups, and the learning rate schedule: linear warm-up, then cosine decay.

Weight decay:

    decay: all         every parameter decays
    decay: matrices    vectors (norms, biases, gates) do not decay
    no_decay = True    a parameter with this attribute never decays

Learning rate:

    step s < warmup       peak (s + 1) / (warmup + 1)                             never 0, so that no step is wasted
    s = warmup            peak
    cosine, s < horizon   peak (floor + (1 - floor) (1 + cos(pi done)) / 2),    done = (s - warmup) / (horizon - warmup)
    linear, s < horizon   peak (floor + (1 - floor) (1 - done))
    s >= horizon          peak floor
    constant              peak

    lr_interval: epoch    s is the first step of its epoch

    train.memories       the learning rate of the parameters that only one memory has is multiplied by its lr_scale

The first step has number 0.  The horizon defaults to the number of steps, so that the last step is just above the
floor.
"""

import math
from typing import Any

from torch import Tensor, nn
from torch.optim import AdamW

from hqlt_lab.experiment.run_settings import TrainConfig
from hqlt_lab.train.per_memory_training import lr_scales


def build_adamw(model: nn.Module, train: TrainConfig) -> AdamW:
    """Return the optimizer of a model's parameters."""
    beta1, beta2 = train.betas
    return AdamW(parameter_groups(model, train), lr=train.lr, betas=(beta1, beta2), eps=train.adam_eps)


def parameter_groups(model: nn.Module, train: TrainConfig) -> list[dict[str, Any]]:
    """Return the groups of parameters with and without weight decay, without empty groups.

    Parameters of memories with a learning-rate scale are in further groups, which have an `lr` and their `lr_scale`.
    """
    scales = lr_scales(model, train)
    groups: list[dict[str, Any]] = []
    for scale in dict.fromkeys((1.0, *scales.values())):
        parameters = [parameter for parameter in model.parameters() if scales.get(id(parameter), 1.0) == scale]
        scaled = {} if scale == 1 else {"lr": train.lr * scale, "lr_scale": scale}
        with_decay = [parameter for parameter in parameters if has_weight_decay(parameter, train)]
        without_decay = [parameter for parameter in parameters if not has_weight_decay(parameter, train)]
        groups += [
            {"params": with_decay, "weight_decay": train.weight_decay, **scaled},
            {"params": without_decay, "weight_decay": 0.0, **scaled},
        ]
    return [group for group in groups if group["params"]]


def has_weight_decay(parameter: Tensor, train: TrainConfig) -> bool:
    """Return whether weight decay applies to this parameter."""
    return not getattr(parameter, "no_decay", False) and (train.decay == "all" or parameter.ndim >= 2)


def lr_factor(train: TrainConfig, step: int) -> float:
    """Return the factor of the peak learning rate at this step."""
    if train.lr_interval == "epoch" and train.epochs is not None:
        steps_per_epoch = train.steps // train.epochs
        step = step // steps_per_epoch * steps_per_epoch
    if step < train.warmup:
        return (step + 1) / (train.warmup + 1)
    if train.schedule == "constant":
        return 1.0
    decay_steps = max(1, (train.lr_horizon or train.steps) - train.warmup)
    done = min(1.0, (step - train.warmup) / decay_steps)
    if train.schedule == "linear":
        return train.lr_floor + (1 - train.lr_floor) * (1 - done)
    return train.lr_floor + (1 - train.lr_floor) * (1 + math.cos(math.pi * done)) / 2
