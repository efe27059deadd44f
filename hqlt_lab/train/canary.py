"""The start-up canary: the first step is computed twice, and the two should be the same, bit by bit.

    loss and gradients of the first piece        with the kernels, the precision, the device and the random numbers
    forward, backward, forward, backward         that training will have

Where they differ, some operation of this composition does not repeat here, and neither will the run.  Where they are
the same, none was caught: an order of additions that is left to chance may agree once.

It costs these passes and leaves no trace.  Gradients are handed over instead of collected, so that the parameters have
none afterwards and no other process hears of them; random numbers and buffers are put back.  Where processes have
shares of the parameters, gradients are averaged and shared out as in training, so that the exchange is looked at too.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from hqlt_lab.train.batches import Piece
from hqlt_lab.train.canary_file import Canary
from hqlt_lab.train.learner import Learner
from hqlt_lab.train.ranks import summed


def first_step_twice(trainer: Trainer, learner: Learner) -> Canary:
    """Whether it came out the same; every process must ask, and all know the answer."""
    piece = trainer.strategy.batch_to_device(next(iter(learner.train_dataloader())))
    one, other = (first_step(trainer, learner, piece) for _ in range(2))
    differs = [name for name in one if not same_bits(one[name], other[name])]
    in_all = summed(torch.tensor(float(len(differs)), device=piece.tokens.device))
    return Canary(in_all.item() == 0, differs)


def first_step(trainer: Trainer, learner: Learner, piece: Piece) -> dict[str, Tensor]:
    """The loss, and each parameter's gradient by its name."""
    named = {name: each for name, each in learner.model.named_parameters() if each.requires_grad}
    with undisturbed(learner.model, piece.tokens.device):
        with trainer.precision_plugin.train_step_context():
            loss = learner.total(piece) / piece.due
        # of float16 the scaled loss is differentiated: small gradients would vanish
        scaled = trainer.precision_plugin.pre_backward(loss, learner)
        grads = gradients(scaled, list(named.values()), isinstance(learner.model, FSDPModule))
    return {"loss": loss.detach(), **dict(zip(named, grads, strict=True))}


def gradients(loss: Tensor, parameters: list[nn.Parameter], shared: bool) -> Sequence[Tensor]:
    """Of each parameter, or of this process's share of it, which only a collected gradient is cut into."""
    if not shared:
        return torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    loss.backward()
    grads = [torch.zeros(()) if each.grad is None else each.grad.to_local() for each in parameters]  # type: ignore[attr-defined]
    for parameter in parameters:
        parameter.grad = None
    return grads


@contextmanager
def undisturbed(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Random numbers and buffers are afterwards what they were."""
    buffers = [
        (module, name, buffer, buffer.clone())
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    with torch.random.fork_rng([] if device.type == "cpu" else [device], device_type=device.type):
        yield
    with torch.no_grad():
        for module, name, buffer, before in buffers:
            setattr(module, name, buffer.copy_(before))  # a part may change a buffer, or put another in its place


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Also where they are not numbers, and 0 is not -0."""
    return torch.equal(*(x.contiguous().flatten().view(torch.uint8) for x in (one, other)))
