"""A gated MLP on a CPU, some rows at a time: what is wide stays in the cache and is computed again backwards.

    y = (silu(x G^T) * x U^T) D^T

Written as three linear maps, a training step spends its time moving the wide matrices, eight of them there and back,
between memory and processor; two more products cost less.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.ops.steps import forward_mode

CACHED = 2**19  # numbers of a wide matrix that is worked on


def swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """x [.., width], gate and up [inner, width], down [width, inner]."""
    if pays(x, len(gate)):
        return in_blocks(x.flatten(0, -2), gate, up, down).view(*x.shape[:-1], len(down))
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def pays(x: Tensor, inner: int) -> bool:
    """Whether the wide matrices are too large for the cache; under autocast torch chooses what is computed how."""
    large, exact = x[..., 0].numel() * inner > CACHED, x.dtype in (torch.float32, torch.float64)
    plain = torch.is_autocast_enabled("cpu") or forward_mode()
    return large and exact and x.device.type == "cpu" and not plain


class Blocks:
    """Rows of x, some at a time, and the wide matrices that belong to them."""

    def __init__(self, x: Tensor, gate: Tensor, up: Tensor) -> None:
        self.x, self.gate, self.up = x, gate, up
        self.step = max(CACHED // len(gate), 1)
        self.buffers: dict[tuple[str, int], Tensor] = {}

    def rows(self) -> Iterator[slice]:
        return (slice(start, min(start + self.step, len(self.x))) for start in range(0, len(self.x), self.step))

    def mm(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        """A product [rows, inner], in the buffer of that name."""
        if (name, len(a)) not in self.buffers:
            self.buffers[name, len(a)] = a.new_empty(len(a), b.shape[1])
        return torch.mm(a, b, out=self.buffers[name, len(a)])

    def wide(self, rows: slice) -> tuple[Tensor, Tensor]:
        """x G^T and x U^T."""
        return self.mm("gate", self.x[rows], self.gate.T), self.mm("up", self.x[rows], self.up.T)


@torch.library.custom_op("hqlt::swiglu", mutates_args=())
def in_blocks(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    blocks, y = Blocks(x, gate, up), x.new_empty(len(x), len(down))
    for rows in blocks.rows():
        a, b = blocks.wide(rows)
        torch.mm(F.silu(a, inplace=True).mul_(b), down.T, out=y[rows])
    return y


@torch.library.custom_op("hqlt::swiglu_backward", mutates_args=())
def in_blocks_backward(
    by_y: Tensor, x: Tensor, gate: Tensor, up: Tensor, down: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    blocks, by_y = Blocks(x, gate, up), by_y.contiguous()
    grads = torch.empty_like(x), torch.zeros_like(gate), torch.zeros_like(up), torch.zeros_like(down)
    by_x, by_gate, by_up, by_down = grads
    for rows in blocks.rows():
        a, b = blocks.wide(rows)
        active = F.silu(a)
        by_down.addmm_(by_y[rows].T, active * b)
        by_wide = blocks.mm("by_wide", by_y[rows], down)
        by_b, by_a = active.mul_(by_wide), torch.ops.aten.silu_backward(by_wide.mul_(b), a)
        by_gate.addmm_(by_a.T, x[rows])
        by_up.addmm_(by_b.T, x[rows])
        torch.mm(by_a, gate, out=by_x[rows]).addmm_(by_b, up)
    return grads


@in_blocks.register_fake
def _(x, gate, up, down):  # type: ignore[no-untyped-def]
    return x.new_empty(len(x), len(down))


@in_blocks_backward.register_fake
def _(by_y, *given):  # type: ignore[no-untyped-def]
    return tuple(torch.empty_like(one) for one in given)


def remember(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def differentiate(ctx: Any, by_y: Tensor) -> tuple[Tensor, ...]:
    return in_blocks_backward(by_y, *ctx.saved_tensors)


in_blocks.register_autograd(differentiate, setup_context=remember)
