"""Cross-entropy of a linear map into a vocabulary, some rows at a time: the logits of all rows never exist at once.

    z_n = W x_n,     loss_n = log sum_v exp z_nv - z_n,label_n          0 where the label is negative
    dz_n = (softmax(z_n) - onehot(label_n)) g_n,     dx = dz W,     dW = sum over n of dz_n x_n^T

Only the log-sum-exp of each row is saved; the backward pass recomputes the logits.  Computed separately, the logits,
their softmax and its gradient would each be as large as rows x vocabulary, more than the rest of a language model.
Products are computed in the precision of autocast, everything else at least in float32.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.ops.autograd_context import AutogradContext
from hqlt_lab.ops.precision import at_least_float32, disable_autocast, is_forward_mode_ad

# each chunk reads all of W, so chunks of few rows would be limited by memory bandwidth
LOGITS_PER_CHUNK = {"cpu": 2**24, "cuda": 2**26}


def cross_entropy(x: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """Return the losses [N], at least in float32.  x [N, D], weight [V, D], labels [N]."""
    if is_forward_mode_ad():
        logits = at_least_float32(F.linear(x, weight))
        return F.cross_entropy(logits, labels.where(labels >= 0, -1), ignore_index=-1, reduction="none")
    device_type = x.device.type
    if not x.is_meta and torch.is_autocast_enabled(device_type) and x.dtype != torch.float64:
        x, weight = (tensor.to(torch.get_autocast_dtype(device_type)) for tensor in (x, weight))
    logits_per_chunk = LOGITS_PER_CHUNK.get(device_type, LOGITS_PER_CHUNK["cpu"])
    return cross_entropy_op(x, weight, labels, max(1, logits_per_chunk // len(weight)))[0]


def row_chunks(rows: int, rows_per_chunk: int) -> Iterator[slice]:
    return (slice(start, min(start + rows_per_chunk, rows)) for start in range(0, rows, rows_per_chunk))


class ChunkedLogits:
    """Compute logits some rows at a time, in one buffer: allocating new memory would cost as much as the product."""

    def __init__(self, x: Tensor, weight: Tensor, rows_per_chunk: int) -> None:
        self.x, self.weight = x, weight
        self.buffer = x.new_empty(min(rows_per_chunk, len(x)), len(weight))

    def compute_logits(self, rows: slice) -> Tensor:
        """Return the logits [rows, V] at least in float32.  The caller may overwrite them; so does the next call."""
        return at_least_float32(torch.mm(self.x[rows], self.weight.T, out=self.buffer[: rows.stop - rows.start]))


@torch.library.custom_op("hqlt::cross_entropy", mutates_args=())
def cross_entropy_op(x: Tensor, weight: Tensor, labels: Tensor, rows_per_chunk: int) -> tuple[Tensor, Tensor]:
    """Return losses and log-sum-exps, both [N]."""
    losses = at_least_float32(x.new_empty(0)).new_empty(len(x))
    logsumexps = torch.empty_like(losses)
    logits = ChunkedLogits(x, weight, rows_per_chunk)
    with disable_autocast(x):
        for rows in row_chunks(len(x), rows_per_chunk):
            z = logits.compute_logits(rows)
            label_logits = z.gather(1, labels[rows, None].clamp(min=0))[:, 0]
            largest = z.amax(1)
            # not torch.logsumexp, which would allocate a second matrix of this size
            logsumexps[rows] = z.sub_(largest[:, None]).exp_().sum(1).log_().add_(largest)
            losses[rows] = (logsumexps[rows] - label_logits).masked_fill_(labels[rows] < 0, 0)
    return losses, logsumexps


@torch.library.custom_op("hqlt::cross_entropy_backward", mutates_args=())
def cross_entropy_backward_op(
    grad_losses: Tensor,
    x: Tensor,
    weight: Tensor,
    labels: Tensor,
    logsumexps: Tensor,
    rows_per_chunk: int,
    needs_grad_x: bool,
    needs_grad_weight: bool,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of x and weight; an empty tensor for one that is not needed."""
    grad_x = torch.empty_like(x) if needs_grad_x else x.new_empty(0)
    # summed over chunks, hence at least in float32
    grad_weight = at_least_float32(torch.zeros_like(weight) if needs_grad_weight else weight.new_empty(0))
    grad_losses, logits = grad_losses.masked_fill(labels < 0, 0), ChunkedLogits(x, weight, rows_per_chunk)
    with disable_autocast(x):
        for rows in row_chunks(len(x), rows_per_chunk):
            p = logits.compute_logits(rows).sub_(logsumexps[rows, None]).exp_()
            p.scatter_add_(1, labels[rows, None].clamp(min=0), -torch.ones_like(logsumexps[rows, None]))
            grad_z = p.mul_(grad_losses[rows, None]).to(x.dtype)
            if needs_grad_x:
                torch.mm(grad_z, weight, out=grad_x[rows])
            if needs_grad_weight:
                accumulate_product(grad_weight, grad_z.T, x[rows])
    return grad_x, grad_weight.to(weight.dtype)


def accumulate_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a b to `total`.  addmm_ requires all three to have the same dtype."""
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    else:
        total.add_(a @ b)


@cross_entropy_op.register_fake
def _fake_cross_entropy(x: Tensor, weight: Tensor, labels: Tensor, rows_per_chunk: int) -> tuple[Tensor, Tensor]:
    losses = at_least_float32(x.new_empty(len(x)))
    return losses, torch.empty_like(losses)


@cross_entropy_backward_op.register_fake
def _fake_cross_entropy_backward(
    grad_losses: Tensor,
    x: Tensor,
    weight: Tensor,
    labels: Tensor,
    logsumexps: Tensor,
    rows_per_chunk: int,
    needs_grad_x: bool,
    needs_grad_weight: bool,
) -> tuple[Tensor, Tensor]:
    grad_x = torch.empty_like(x) if needs_grad_x else x.new_empty(0)
    return grad_x, torch.empty_like(weight) if needs_grad_weight else weight.new_empty(0)


def setup_context(ctx: AutogradContext, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight, labels, rows_per_chunk = inputs
    ctx.constants = (rows_per_chunk,)
    ctx.save_for_backward(x, weight, labels, output[1])
    ctx.mark_non_differentiable(output[1])


def backward(ctx: AutogradContext, grad_losses: Tensor, grad_logsumexps: Any) -> tuple[Tensor | None, ...]:
    needs_grad_x, needs_grad_weight, *_ = ctx.needs_input_grad
    grad_x, grad_weight = cross_entropy_backward_op(
        grad_losses, *ctx.saved_tensors, *ctx.constants, needs_grad_x, needs_grad_weight
    )
    return grad_x if needs_grad_x else None, grad_weight if needs_grad_weight else None, None, None


cross_entropy_op.register_autograd(backward, setup_context=setup_context)
