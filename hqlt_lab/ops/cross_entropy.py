"""Cross-entropy of a linear map into a vocabulary, some rows at a time: the logits of all rows never exist together.

    z_n = W x_n,     loss_n = log sum_v exp z_nv - z_n,label_n          0 where the label is negative
    dz_n = (softmax(z_n) - onehot(label_n)) g_n,     dx = dz W,     dW = sum over n of dz_n x_n^T

A row keeps its log-sum-exp, one number; backwards its logits are computed again.  Written as two steps, the logits,
their softmax and its gradient are as large as rows x vocabulary each, which for a language model is more than the
rest of it.  Products are computed in the precision that autocast asks for, everything else in float32 at least.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.ops.steps import forward_mode, no_autocast, precise

# logits that are worked on; each chunk reads all of W, so that few rows at a time would wait for memory
CHUNK = {"cpu": 2**24, "cuda": 2**26}


def cross_entropy(x: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """The losses [N], in float32 at least; x [N, D], weight [V, D], labels [N]."""
    if forward_mode():
        logits = precise(F.linear(x, weight))
        return F.cross_entropy(logits, labels.where(labels >= 0, -1), ignore_index=-1, reduction="none")
    kind = x.device.type
    if not x.is_meta and torch.is_autocast_enabled(kind) and x.dtype != torch.float64:
        x, weight = (each.to(torch.get_autocast_dtype(kind)) for each in (x, weight))
    return in_chunks(x, weight, labels, max(1, CHUNK.get(kind, CHUNK["cpu"]) // len(weight)))[0]


def chunks(rows: int, step: int) -> Iterator[slice]:
    """Rows, so many at a time."""
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


class Logits:
    """Of some rows at a time, in memory that the next rows use again: fresh pages cost as much as a product."""

    def __init__(self, x: Tensor, weight: Tensor, step: int) -> None:
        self.x, self.weight = x, weight
        self.room = x.new_empty(min(step, len(x)), len(weight))

    def of(self, rows: slice) -> Tensor:
        """[rows, V], precise enough to be summed; it may be written over."""
        return precise(torch.mm(self.x[rows], self.weight.T, out=self.room[: rows.stop - rows.start]))


@torch.library.custom_op("hqlt::cross_entropy", mutates_args=())
def in_chunks(x: Tensor, weight: Tensor, labels: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """Losses and log-sum-exps, both [N]."""
    losses = precise(x.new_empty(0)).new_empty(len(x))
    sums = torch.empty_like(losses)
    logits = Logits(x, weight, step)
    with no_autocast(x):
        for rows in chunks(len(x), step):
            z = logits.of(rows)
            chosen = z.gather(1, labels[rows, None].clamp(min=0))[:, 0]
            largest = z.amax(1)
            # logsumexp would take a second matrix of this size
            sums[rows] = z.sub_(largest[:, None]).exp_().sum(1).log_().add_(largest)
            losses[rows] = (sums[rows] - chosen).masked_fill_(labels[rows] < 0, 0)
    return losses, sums


@torch.library.custom_op("hqlt::cross_entropy_backward", mutates_args=())
def in_chunks_backward(
    by_losses: Tensor, x: Tensor, weight: Tensor, labels: Tensor, sums: Tensor, step: int, of_x: bool, of_weight: bool
) -> tuple[Tensor, Tensor]:
    """The gradients by x and weight; one that nobody asked for is empty."""
    by_x = torch.empty_like(x) if of_x else x.new_empty(0)
    # added up over chunks, so in float32 at least
    by_weight = precise(torch.zeros_like(weight) if of_weight else weight.new_empty(0))
    by_losses, logits = by_losses.masked_fill(labels < 0, 0), Logits(x, weight, step)
    with no_autocast(x):
        for rows in chunks(len(x), step):
            p = logits.of(rows).sub_(sums[rows, None]).exp_()
            p.scatter_add_(1, labels[rows, None].clamp(min=0), -torch.ones_like(sums[rows, None]))
            by_z = p.mul_(by_losses[rows, None]).to(x.dtype)
            if of_x:
                torch.mm(by_z, weight, out=by_x[rows])
            if of_weight:
                add_product(by_weight, by_z.T, x[rows])
    return by_x, by_weight.to(weight.dtype)


def add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a b; torch adds in place only what is of one precision."""
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    else:
        total.add_(a @ b)


@in_chunks.register_fake
def _(x, weight, labels, step):  # type: ignore[no-untyped-def]
    losses = precise(x.new_empty(len(x)))
    return losses, torch.empty_like(losses)


@in_chunks_backward.register_fake
def _(by_losses, x, weight, labels, sums, step, of_x, of_weight):  # type: ignore[no-untyped-def]
    return tuple(torch.empty_like(a) if of else a.new_empty(0) for a, of in ((x, of_x), (weight, of_weight)))


def remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.step = inputs
    ctx.save_for_backward(*tensors, output[1])
    ctx.mark_non_differentiable(output[1])


def differentiate(ctx: Any, by_losses: Tensor, by_sums: Any) -> tuple[Tensor | None, ...]:
    of_x, of_weight, *_ = ctx.needs_input_grad
    by_x, by_weight = in_chunks_backward(by_losses, *ctx.saved_tensors, ctx.step, of_x, of_weight)
    return by_x if of_x else None, by_weight if of_weight else None, None, None


in_chunks.register_autograd(differentiate, setup_context=remember)
