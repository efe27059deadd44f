"""What is looked at before an agent learns: what computes its memory, and whether its first update repeats."""

from pathlib import Path

import torch
from torch import Tensor

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.model.choices import choices
from hqlt_lab.train.canary import same_bits, undisturbed
from hqlt_lab.train.canary_file import Canary
from hqlt_lab.train.life import Life
from hqlt_lab.train.ops_file import write_ops
from hqlt_lab.train.trainer import precision, working_dtype


def is_exact(cell: Cell) -> bool:
    """Whether layers compute in 32 bits or more."""
    return working_dtype(precision(cell.trainer)) in (torch.float32, torch.float64)


def tell_what_computes(life: Life, folder: Path) -> None:
    """Which backends, for episodes that are learned from."""
    name, device, tokens = precision(life.cell.trainer), life.agent.device.type, life.world.tokens_in("train")
    write_ops(folder, device, name, choices(life.agent.memory, tokens, device, working_dtype(name)))


def listen_to_the_canary(life: Life, folder: Path) -> list[str]:
    """See whether the next update repeats, before it is made; what has to be said of it."""
    one, other = (gradients(life) for _ in range(2))
    differs = [name for name in one if not same_bits(one[name], other[name])]
    found = Canary(not differs, differs)
    found.write(folder)
    return [found.warning] if life.cell.trainer.deterministic and differs else []


def gradients(life: Life) -> dict[str, Tensor]:
    """The loss of the next update, and each parameter's gradient by its name."""
    named = dict(life.agent.named_parameters())
    with undisturbed(life.agent, life.agent.device):
        loss = life.losses().total
        grads = torch.autograd.grad(loss, list(named.values()), allow_unused=True, materialize_grads=True)
    return {"loss": loss.detach(), **dict(zip(named, grads, strict=True))}
