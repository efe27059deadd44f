"""Softmax attention over a window on a CPU: bands of queries, a few at a time, in buffers that stay in the cache.

A band of `band_width` queries reaches the `band_width + span - 1` keys that end with its last query.  Neighboring bands
of a row are one batched product, whose windows of keys overlap in memory.  The backward pass recomputes the scores, so
nothing of size T * window is saved: only the output, and q, k, v padded to whole bands.

    P = softmax(q k^T / sqrt(K) + mask)        o = P v
    dv = P^T do        dS = P (do v^T - do . o)        dq = dS k / sqrt(K)        dk = dS^T q / sqrt(K)

Forward and backward are one operator each, since torch.compile would otherwise unroll the loops.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.ops.autograd_context import AutogradContext
from hqlt_lab.ops.gates import OptionalTensor
from hqlt_lab.ops.memory_schedule import Schedule

CACHE_SCORES = 2**17  # scores computed at once


def sliding_window_attention(
    q: Tensor, k: Tensor, v: Tensor, schedule: Schedule, position: Tensor | None, band_width: int
) -> Tensor:
    """Compute `attend` for a schedule with a limited span, in bands of `band_width` >= span queries."""
    span = schedule.attention_span
    assert span is not None
    length, past_keys, tail = q.shape[2], k.shape[2] - q.shape[2], -q.shape[2] % band_width
    q = F.pad(q, (0, 0, 0, tail))
    k, v = (F.pad(x, (0, 0, span - 1 - past_keys, tail)) for x in (k, v))
    if position is None and schedule.block is not None:
        position = torch.arange(past_keys, past_keys + length, device=q.device)[None]
    position = None if position is None else F.pad(position, (0, tail)).expand(len(q), -1)
    window, block = schedule.window or 0, schedule.block or 0
    return banded_attention_op(
        q.contiguous(), k.contiguous(), v.contiguous(), position, band_width, past_keys, window, block
    )[:, :, :length]


class BandedAttention:
    """The bands of all rows, a few at a time, as views of [R, T, ..]."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        position: OptionalTensor,
        band_width: int,
        past_keys: int,
        window: int,
        block: int,
    ) -> None:
        """Take the arguments of the operator; 0 means no window and no block."""
        self.q, self.k, self.v = (x.flatten(0, 1) for x in (q, k, v))
        self.heads, self.position = q.shape[1], position
        self.band_width, self.past_keys = band_width, past_keys
        self.schedule = Schedule(window=window or None, block=block or None)
        self.overlap = k.shape[2] - q.shape[2]  # keys that a band shares with the band before it
        self.keys_per_band = band_width + self.overlap
        self.num_bands = q.shape[2] // band_width
        self.scale = q.shape[3] ** -0.5
        self.score_buffers = [q.new_empty(0), q.new_empty(0)]
        # the mask of a band whose keys all exist, with one document per row
        self.default_bias = self.mask_bias(0, slice(0, 1), torch.arange(band_width)[None, :, None] + self.overlap)

    def band_groups(self) -> Iterator[tuple[int, slice]]:
        """Yield a row and some of its bands, until all are covered."""
        step = max(CACHE_SCORES // (self.band_width * self.keys_per_band), 1)
        for row in range(len(self.q)):
            for start in range(0, self.num_bands, step):
                yield row, slice(start, min(start + step, self.num_bands))

    def slice_queries(self, x: Tensor, row: int, bands: slice) -> Tensor:
        """Return the elements of x that belong to the queries of these bands: [n, band_width, ..]."""
        return x[row, bands.start * self.band_width : bands.stop * self.band_width].unflatten(0, (-1, self.band_width))

    def slice_keys(self, x: Tensor, row: int, bands: slice) -> Tensor:
        """Return the elements of x that belong to the keys of these bands: [n, keys_per_band, ..], overlapping."""
        step = x.stride(1)
        shape, strides = (bands.stop - bands.start, self.keys_per_band, x.shape[2]), (self.band_width * step, step, 1)
        return x.as_strided(
            shape, strides, x.storage_offset() + row * x.stride(0) + bands.start * self.band_width * step
        )

    def add_to_keys(self, x: Tensor, row: int, bands: slice, update: Tensor) -> None:
        """Add to the key windows of x, in two steps since neighboring windows overlap."""
        target = self.slice_keys(x, row, bands)
        target[:, self.overlap :].add_(update[:, self.overlap :])
        target[:, : self.overlap].add_(update[:, : self.overlap])

    def compute_probabilities(self, row: int, bands: slice) -> Tensor:
        """Return P [n, band_width, keys_per_band] of these bands, in a buffer that the next call overwrites."""
        count = bands.stop - bands.start
        if self.score_buffers[0].shape[0] != count:
            self.score_buffers = [self.q.new_empty(count, self.band_width, self.keys_per_band) for _ in range(2)]
        scores, probabilities = self.score_buffers
        has_all_keys = bands.start * self.band_width + self.past_keys >= self.overlap
        bias = self.default_bias if self.position is None and has_all_keys else self.mask_bias(row, bands)
        queries, keys = self.slice_queries(self.q, row, bands), self.slice_keys(self.k, row, bands)
        torch.baddbmm(bias, queries, keys.mT, alpha=self.scale, out=scores)
        return torch.softmax(scores, -1, out=probabilities)

    def mask_bias(self, row: int, bands: slice, t: Tensor | None = None) -> Tensor:
        """Return 0 where a query sees a key, else -inf.  [n, band_width, keys_per_band].  t: the query positions."""
        if t is None and self.position is None:
            index = torch.arange(bands.start * self.band_width, bands.stop * self.band_width)
            t = index.view(-1, self.band_width, 1) + self.past_keys
        elif t is None and self.position is not None:
            t = self.slice_queries(self.position, row // self.heads, bands)[..., None]
        column = torch.arange(-self.overlap, self.band_width)
        assert t is not None
        visible = self.schedule.softmax_mask_at(t, t + column - column[self.overlap :, None])
        return torch.zeros(visible.shape, dtype=self.q.dtype).masked_fill_(~visible, -torch.inf)


@torch.library.custom_op("hqlt::banded_attention", mutates_args=())
def banded_attention_op(
    q: Tensor, k: Tensor, v: Tensor, position: OptionalTensor, band_width: int, past_keys: int, window: int, block: int
) -> Tensor:
    """Attend in bands.  q [B, H, N * band_width, K]; k, v with span - 1 more positions in front."""
    attention = BandedAttention(q, k, v, position, band_width, past_keys, window, block)
    output = q.new_empty(*q.shape[:3], v.shape[3])
    output_rows = output.flatten(0, 1)
    for row, bands in attention.band_groups():
        torch.bmm(
            attention.compute_probabilities(row, bands),
            attention.slice_keys(attention.v, row, bands),
            out=attention.slice_queries(output_rows, row, bands),
        )
    return output


@torch.library.custom_op("hqlt::banded_attention_backward", mutates_args=())
def banded_attention_backward_op(
    grad_output: Tensor,
    output: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    position: OptionalTensor,
    band_width: int,
    past_keys: int,
    window: int,
    block: int,
) -> tuple[Tensor, Tensor, Tensor]:
    attention = BandedAttention(q, k, v, position, band_width, past_keys, window, block)
    grads = (torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v))
    grad_q, grad_k, grad_v = (x.flatten(0, 1) for x in grads)
    grad_output_rows = grad_output.contiguous().flatten(0, 1)
    output_dots = (grad_output_rows * output.flatten(0, 1)).sum(-1, keepdim=True)  # do . o
    for row, bands in attention.band_groups():
        probabilities = attention.compute_probabilities(row, bands)
        keys = attention.slice_keys(attention.k, row, bands)
        grad_bands = attention.slice_queries(grad_output_rows, row, bands)
        attention.add_to_keys(grad_v, row, bands, probabilities.mT @ grad_bands)
        values = attention.slice_keys(attention.v, row, bands)
        grad_scores = torch.bmm(grad_bands, values.mT, out=attention.score_buffers[0])
        grad_scores.sub_(attention.slice_queries(output_dots, row, bands)).mul_(probabilities).mul_(attention.scale)
        torch.bmm(grad_scores, keys, out=attention.slice_queries(grad_q, row, bands))
        queries = attention.slice_queries(attention.q, row, bands)
        attention.add_to_keys(grad_k, row, bands, grad_scores.mT @ queries)
    return grads


@banded_attention_op.register_fake
def _fake_banded_attention(
    q: Tensor, k: Tensor, v: Tensor, position: OptionalTensor, band_width: int, past_keys: int, window: int, block: int
) -> Tensor:
    return q.new_empty(*q.shape[:3], v.shape[3])


@banded_attention_backward_op.register_fake
def _fake_banded_attention_backward(
    grad_output: Tensor, output: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def setup_context(ctx: AutogradContext, inputs: tuple[Any, ...], output: Tensor) -> None:
    q, k, v, position, *constants = inputs
    ctx.constants = tuple(constants)
    ctx.save_for_backward(output, q, k, v, position)


def backward(ctx: AutogradContext, grad_output: Tensor) -> tuple[OptionalTensor, ...]:
    return (*banded_attention_backward_op(grad_output, *ctx.saved_tensors, *ctx.constants), *[None] * 5)


banded_attention_op.register_autograd(backward, setup_context=setup_context)
