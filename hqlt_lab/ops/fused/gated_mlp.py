"""Gated MLP (SwiGLU) on a CPU, some rows at a time: the wide matrices stay in the cache and are recomputed backward.

    y = (silu(x G^T) * x U^T) D^T

As three linear maps, a training step spends its time moving eight wide matrices between memory and processor; two more
products cost less.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.ops.autograd_context import AutogradContext
from hqlt_lab.ops.precision import is_forward_mode_ad

CACHE_ELEMENTS = 2**19  # elements of a wide matrix that is computed at once


def swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """Apply the gated MLP.  x [.., width], gate and up [inner, width], down [width, inner] -> [.., width]."""
    if is_blocking_faster(x, len(gate)):
        return swiglu_op(x.flatten(0, -2), gate, up, down).view(*x.shape[:-1], len(down))
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def is_blocking_faster(x: Tensor, inner: int) -> bool:
    """Return whether the wide matrices exceed the cache and the operator supports x.

    The operator is not used under autocast, where torch decides the precision of each operation.
    """
    is_large, is_exact = x[..., 0].numel() * inner > CACHE_ELEMENTS, x.dtype in (torch.float32, torch.float64)
    needs_plain = torch.is_autocast_enabled("cpu") or is_forward_mode_ad()
    return is_large and is_exact and x.device.type == "cpu" and not needs_plain


class RowBlocks:
    """Blocks of rows of x, and the wide matrices of one block."""

    def __init__(self, x: Tensor, gate: Tensor, up: Tensor) -> None:
        self.x, self.gate, self.up = x, gate, up
        self.rows_per_block = max(CACHE_ELEMENTS // len(gate), 1)
        self.buffers: dict[tuple[str, int], Tensor] = {}

    def row_slices(self) -> Iterator[slice]:
        return (
            slice(start, min(start + self.rows_per_block, len(self.x)))
            for start in range(0, len(self.x), self.rows_per_block)
        )

    def matmul_into_buffer(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        """Return a b [rows, inner] in the buffer of that name."""
        if (name, len(a)) not in self.buffers:
            self.buffers[name, len(a)] = a.new_empty(len(a), b.shape[1])
        return torch.mm(a, b, out=self.buffers[name, len(a)])

    def project_gate_and_up(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Return x G^T and x U^T."""
        gate_projection = self.matmul_into_buffer("gate", self.x[rows], self.gate.T)
        return gate_projection, self.matmul_into_buffer("up", self.x[rows], self.up.T)


@torch.library.custom_op("hqlt::swiglu", mutates_args=())
def swiglu_op(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    blocks, y = RowBlocks(x, gate, up), x.new_empty(len(x), len(down))
    for rows in blocks.row_slices():
        a, b = blocks.project_gate_and_up(rows)
        torch.mm(F.silu(a, inplace=True).mul_(b), down.T, out=y[rows])
    return y


@torch.library.custom_op("hqlt::swiglu_backward", mutates_args=())
def swiglu_backward_op(
    grad_y: Tensor, x: Tensor, gate: Tensor, up: Tensor, down: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    blocks, grad_y = RowBlocks(x, gate, up), grad_y.contiguous()
    grads = torch.empty_like(x), torch.zeros_like(gate), torch.zeros_like(up), torch.zeros_like(down)
    grad_x, grad_gate, grad_up, grad_down = grads
    for rows in blocks.row_slices():
        a, b = blocks.project_gate_and_up(rows)
        activation = F.silu(a)
        grad_down.addmm_(grad_y[rows].T, activation * b)
        grad_inner = blocks.matmul_into_buffer("grad_inner", grad_y[rows], down)
        grad_b, grad_a = activation.mul_(grad_inner), torch.ops.aten.silu_backward(grad_inner.mul_(b), a)
        grad_gate.addmm_(grad_a.T, x[rows])
        grad_up.addmm_(grad_b.T, x[rows])
        torch.mm(grad_a, gate, out=grad_x[rows]).addmm_(grad_b, up)
    return grads


@swiglu_op.register_fake
def _fake_swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return x.new_empty(len(x), len(down))


@swiglu_backward_op.register_fake
def _fake_swiglu_backward(
    grad_y: Tensor, x: Tensor, gate: Tensor, up: Tensor, down: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(gate), torch.empty_like(up), torch.empty_like(down)


def setup_context(ctx: AutogradContext, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def backward(ctx: AutogradContext, grad_y: Tensor) -> tuple[Tensor, ...]:
    return swiglu_backward_op(grad_y, *ctx.saved_tensors)


swiglu_op.register_autograd(backward, setup_context=setup_context)
