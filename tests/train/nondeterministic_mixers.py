"""Mixers for tests of the determinism check: one is nondeterministic in training, two only seem to be."""

from itertools import count
from typing import Literal

import torch
from torch import Tensor

from hqlt_lab.components.mixers._base import Mixer
from hqlt_lab.registry import register
from hqlt_lab.train.distributed.process_group import get_rank

CALLS = count(1)  # in the whole process; the determinism check does not restore it


class DisturbedSum(Mixer):
    """The sum of both memories, modified by `disturb` in training mode."""

    def forward(self, x: Tensor, fw: Tensor, kv: Tensor) -> Tensor:
        return self.disturb(fw + kv) if self.training else fw + kv

    def disturb(self, mixed: Tensor) -> Tensor:
        raise NotImplementedError


@register("mixer", "nondeterministic")
class Nondeterministic(DisturbedSum):
    """Nondeterministic output, or only its gradient, in all processes or in one."""

    def __init__(self, target: Literal["answer", "gradient"] = "answer", process: int | None = None) -> None:
        super().__init__()
        self.target, self.process = target, process

    def disturb(self, mixed: Tensor) -> Tensor:
        if self.process not in (None, get_rank()):
            return mixed
        if self.target == "answer":
            return change_every_call(mixed)
        mixed = mixed.clone()
        mixed.register_hook(change_every_call)
        return mixed


def change_every_call(x: Tensor) -> Tensor:
    """Return a different tensor at every call, also after normalization."""
    return x + 1e-3 * next(CALLS) * torch.linspace(-1, 1, x.shape[-1], dtype=x.dtype)


@register("mixer", "torch_random")
class TorchRandom(DisturbedSum):
    """Uses torch's random numbers, which are repeatable."""

    def disturb(self, mixed: Tensor) -> Tensor:
        return mixed * (torch.rand_like(mixed) + 0.5)


@register("mixer", "buffer_state")
class BufferState(DisturbedSum):
    """The output depends on two buffers: one is changed in place, the other is replaced."""

    changed: Tensor
    replaced: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("changed", torch.zeros(()))
        self.register_buffer("replaced", torch.zeros(()))

    def disturb(self, mixed: Tensor) -> Tensor:
        self.changed += 1
        self.replaced = self.replaced + 1
        return mixed * (1 + 0.01 * self.changed.item() * self.replaced.item())
