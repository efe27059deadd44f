"""Mixers that do while training what does not repeat, and what looks as if it did not: for tests of the canary."""

from itertools import count
from typing import Literal

import torch
from torch import Tensor

from hqlt_lab.components.mixers._base import Mixer
from hqlt_lab.registry import register
from hqlt_lab.train.ranks import rank

CALLS = count(1)  # of the whole process: nobody puts it back


class Sum(Mixer):
    """The sum of both memories, disturbed while training."""

    def forward(self, x: Tensor, fw: Tensor, kv: Tensor) -> Tensor:
        return self.disturbed(fw + kv) if self.training else fw + kv

    def disturbed(self, mixed: Tensor) -> Tensor:
        raise NotImplementedError


@register("mixer", "restless")
class Restless(Sum):
    """Restless: the answer, or only its gradient, is another one every time; in all processes or in one."""

    def __init__(self, of: Literal["answer", "gradient"] = "answer", process: int | None = None) -> None:
        super().__init__()
        self.of, self.process = of, process

    def disturbed(self, mixed: Tensor) -> Tensor:
        if self.process not in (None, rank()):
            return mixed
        if self.of == "answer":
            return other(mixed)
        mixed = mixed.clone()
        mixed.register_hook(other)
        return mixed


def other(x: Tensor) -> Tensor:
    """Another one every time, also behind a norm."""
    return x + 1e-3 * next(CALLS) * torch.linspace(-1, 1, x.shape[-1], dtype=x.dtype)


@register("mixer", "drawing")
class Drawing(Sum):
    """Drawing: random numbers are drawn from torch, which repeat."""

    def disturbed(self, mixed: Tensor) -> Tensor:
        return mixed * (torch.rand_like(mixed) + 0.5)


@register("mixer", "counting")
class Counting(Sum):
    """Counting: two buffers change the answer, one that is changed in place and one that is replaced."""

    changed: Tensor
    replaced: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("changed", torch.zeros(()))
        self.register_buffer("replaced", torch.zeros(()))

    def disturbed(self, mixed: Tensor) -> Tensor:
        self.changed += 1
        self.replaced = self.replaced + 1
        return mixed * (1 + 0.01 * self.changed.item() * self.replaced.item())
