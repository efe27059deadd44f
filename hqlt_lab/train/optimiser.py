"""AdamW, with or without decay on what is no matrix.

decay: all         every parameter decays
decay: matrices    vectors (norms, biases, gates) do not
no_decay = True    a parameter with this attribute never does
"""

from typing import Any

from torch import Tensor, nn
from torch.optim import AdamW

from hqlt_lab.experiment.settings import TrainConfig


def adamw(model: nn.Module, train: TrainConfig) -> AdamW:
    """The optimiser of a model's parameters."""
    first, second = train.betas
    return AdamW(groups(model, train), lr=train.lr, betas=(first, second), eps=train.adam_eps)


def groups(model: nn.Module, train: TrainConfig) -> list[dict[str, Any]]:
    """The parameters that decay, and those that do not."""
    decaying = [parameter for parameter in model.parameters() if decays(parameter, train)]
    staying = [parameter for parameter in model.parameters() if not decays(parameter, train)]
    made = [{"params": decaying, "weight_decay": train.weight_decay}, {"params": staying, "weight_decay": 0.0}]
    return [group for group in made if group["params"]]


def decays(parameter: Tensor, train: TrainConfig) -> bool:
    """Whether this one is drawn towards 0."""
    return not getattr(parameter, "no_decay", False) and (train.decay == "all" or parameter.ndim >= 2)
