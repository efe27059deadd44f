"""Softmax over a window on a CPU: bands of queries, a few at a time, in buffers that stay in the cache.

A band of `wide` queries reaches the `wide + span - 1` keys that end with its last query.  Neighbouring bands of one row
are one batched product, whose windows of keys overlap in memory.  Backwards the scores are computed again, so that
nothing of the size T * window is ever kept: the answer, and q, k, v filled up to whole bands.

    P = softmax(q k^T / sqrt(K) + hidden)      o = P v
    dv = P^T do        dS = P (do v^T - do . o)        dq = dS k / sqrt(K)        dk = dS^T q / sqrt(K)

Forward and backward are one operator each: torch.compile would unroll the loops.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.ops.schedule import Schedule
from hqlt_lab.ops.steps import Maybe

CACHED = 2**17  # scores that are worked on at once


def windowed(q: Tensor, k: Tensor, v: Tensor, schedule: Schedule, place: Tensor | None, wide: int) -> Tensor:
    """What `attend` does for a window, with bands of `wide` >= span queries."""
    span = schedule.span
    assert span is not None
    length, past, tail = q.shape[2], k.shape[2] - q.shape[2], -q.shape[2] % wide
    q = F.pad(q, (0, 0, 0, tail))
    k, v = (F.pad(x, (0, 0, span - 1 - past, tail)) for x in (k, v))
    if place is None and schedule.block is not None:
        place = torch.arange(past, past + length, device=q.device)[None]
    place = None if place is None else F.pad(place, (0, tail)).expand(len(q), -1)
    window, block = schedule.window or 0, schedule.block or 0
    return bands(q.contiguous(), k.contiguous(), v.contiguous(), place, wide, past, window, block)[:, :, :length]


class Bands:
    """The bands of a text, some at a time: views of [R, T, ..], one row after the other."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, place: Maybe, wide: int, past: int, schedule: Schedule) -> None:
        self.q, self.k, self.v = (x.flatten(0, 1) for x in (q, k, v))
        self.heads, self.place, self.wide, self.past, self.schedule = q.shape[1], place, wide, past, schedule
        self.reach, self.before = wide + k.shape[2] - q.shape[2], k.shape[2] - q.shape[2]
        self.count = q.shape[2] // wide
        self.scale = q.shape[3] ** -0.5
        self.scores = [q.new_empty(0), q.new_empty(0)]
        self.usual = self.hidden(0, slice(0, 1), torch.arange(wide)[None, :, None] + self.before)

    def groups(self) -> Iterator[tuple[int, slice]]:
        """A row and some of its bands."""
        step = max(CACHED // (self.wide * self.reach), 1)
        for row in range(len(self.q)):
            for start in range(0, self.count, step):
                yield row, slice(start, min(start + step, self.count))

    def own(self, x: Tensor, row: int, some: slice) -> Tensor:
        """The queries of these bands, or anything that lies like them: [n, wide, ..]."""
        return x[row, some.start * self.wide : some.stop * self.wide].unflatten(0, (-1, self.wide))

    def windows(self, x: Tensor, row: int, some: slice) -> Tensor:
        """The keys that these bands reach: [n, reach, ..], overlapping."""
        step = x.stride(1)
        shape, strides = (some.stop - some.start, self.reach, x.shape[2]), (self.wide * step, step, 1)
        return x.as_strided(shape, strides, x.storage_offset() + row * x.stride(0) + some.start * self.wide * step)

    def add_windows(self, x: Tensor, row: int, some: slice, more: Tensor) -> None:
        """Add to the windows of x, in two steps since neighbours overlap."""
        target = self.windows(x, row, some)
        target[:, self.before :].add_(more[:, self.before :])
        target[:, : self.before].add_(more[:, : self.before])

    def softmax(self, row: int, some: slice) -> Tensor:
        """P [n, wide, reach] of these bands."""
        count = some.stop - some.start
        if self.scores[0].shape[0] != count:
            self.scores = [self.q.new_empty(count, self.wide, self.reach) for _ in range(2)]
        scores, weights = self.scores
        usual = self.place is None and some.start * self.wide + self.past >= self.before
        bias = self.usual if usual else self.hidden(row, some)
        queries, keys = self.own(self.q, row, some), self.windows(self.k, row, some)
        torch.baddbmm(bias, queries, keys.mT, alpha=self.scale, out=scores)
        return torch.softmax(scores, -1, out=weights)

    def hidden(self, row: int, some: slice, t: Tensor | None = None) -> Tensor:
        """0 where a query sees a key, else -inf.  [n, wide, reach]."""
        if t is None and self.place is None:
            t = torch.arange(some.start * self.wide, some.stop * self.wide).view(-1, self.wide, 1) + self.past
        elif t is None and self.place is not None:
            t = self.own(self.place, row // self.heads, some)[..., None]
        column = torch.arange(-self.before, self.wide)
        assert t is not None
        sees = self.schedule.softmax_sees_at(t, t + column - column[self.before :, None])
        return torch.zeros(sees.shape, dtype=self.q.dtype).masked_fill_(~sees, -torch.inf)


@torch.library.custom_op("hqlt::bands", mutates_args=())
def bands(q: Tensor, k: Tensor, v: Tensor, place: Maybe, wide: int, past: int, window: int, block: int) -> Tensor:
    """q [B, H, N * wide, K]; k, v with span - 1 more in front."""
    these = Bands(q, k, v, place, wide, past, Schedule(window=window or None, block=block or None))
    answer = q.new_empty(*q.shape[:3], v.shape[3])
    out = answer.flatten(0, 1)
    for row, some in these.groups():
        torch.bmm(these.softmax(row, some), these.windows(these.v, row, some), out=these.own(out, row, some))
    return answer


@torch.library.custom_op("hqlt::bands_backward", mutates_args=())
def bands_backward(
    by_answer: Tensor,
    answer: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    place: Maybe,
    wide: int,
    past: int,
    window: int,
    block: int,
) -> tuple[Tensor, Tensor, Tensor]:
    these = Bands(q, k, v, place, wide, past, Schedule(window=window or None, block=block or None))
    grads = (torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v))
    by_q, by_k, by_v = (x.flatten(0, 1) for x in grads)
    given = by_answer.contiguous().flatten(0, 1)
    through = (given * answer.flatten(0, 1)).sum(-1, keepdim=True)
    for row, some in these.groups():
        weights, keys, mine = these.softmax(row, some), these.windows(these.k, row, some), these.own(given, row, some)
        these.add_windows(by_v, row, some, weights.mT @ mine)
        by_scores = torch.bmm(mine, these.windows(these.v, row, some).mT, out=these.scores[0])
        by_scores.sub_(these.own(through, row, some)).mul_(weights).mul_(these.scale)
        torch.bmm(by_scores, keys, out=these.own(by_q, row, some))
        these.add_windows(by_k, row, some, by_scores.mT @ these.own(these.q, row, some))
    return grads


@bands.register_fake
def _(q, k, v, place, wide, past, window, block):  # type: ignore[no-untyped-def]
    return q.new_empty(*q.shape[:3], v.shape[3])


@bands_backward.register_fake
def _(by_answer, answer, q, k, v, *_):  # type: ignore[no-untyped-def]
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    q, k, v, place, *ctx.rest = inputs
    ctx.save_for_backward(output, q, k, v, place)


def differentiate(ctx: Any, by_answer: Tensor) -> tuple[Maybe, ...]:
    return (*bands_backward(by_answer, *ctx.saved_tensors, *ctx.rest), *[None] * 5)


bands.register_autograd(differentiate, setup_context=remember)
