"""Any course through a memory, as one for kernels that know nothing but write, then read, step by step.

    several writes    a token is as many steps, and reads at the last of them
    hold              the reads of a stretch come first, as steps that write nothing, then its writes, read by nobody
    real              a step that never was has a zero key and fades nothing
    starts            where a sequence of its own begins (`sequences`)

A step with a zero key neither erases nor writes, whatever its gates are, and a zero query reads 0.  So a stretch of
`hold` tokens is twice as many steps, and gives what `hold` means to the last bit.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.ops.chunked import neutral_where_unreal
from hqlt_lab.ops.steps import Course, Gates, each


class Spread(NamedTuple):
    """L steps, each with one write and one read, and where the tokens' reads are among them."""

    q: Tensor  # [B, H, L, K]
    k: Tensor
    v: Tensor
    gates: Gates  # of [B, H, L]
    starts: Tensor | None  # [B, L]
    tokens: int
    hold: int | None
    writes: int

    def reads(self, answers: Tensor) -> Tensor:
        """Of the tokens [B, H, T, V], from those of the steps [B, H, L, V]."""
        if self.hold is None:
            return answers[:, :, self.writes - 1 :: self.writes]
        stretches = answers.unflatten(2, (-1, self.hold * (1 + self.writes)))
        return stretches[:, :, :, : self.hold].flatten(2, 3)[:, :, : self.tokens]


def spread(q: Tensor, k: Tensor, v: Tensor, gates: Gates, course: Course) -> Spread:
    """q [B, H, T, K]; k, v and gates [B, H, T * writes, ..]."""
    (hold, real, starts), tokens, writes = course, q.shape[2], k.shape[2] // q.shape[2]
    k, v, gates = neutral_where_unreal(k, v, gates, real, writes)
    starts = None if starts is None else starts.expand(len(q), -1)
    if hold is None:
        if writes > 1:
            q = F.pad(q[:, :, :, None], (0, 0, writes - 1, 0)).flatten(2, 3)
            starts = None if starts is None else F.pad(starts[:, :, None], (0, writes - 1)).flatten(1)
        return Spread(q, k, v, gates, starts, tokens, None, writes)
    more = -tokens % hold
    q = in_stretches(q, more, hold, 0, hold * writes)
    k, v = (in_stretches(x, more * writes, hold * writes, hold, 0) for x in (k, v))
    gates = each(lambda gate: in_stretches(gate[..., None], more * writes, hold * writes, hold, 0)[..., 0], gates)
    if starts is not None:
        starts = in_stretches(starts[:, None, :, None], more, hold, 0, hold * writes)[:, 0, :, 0]
    return Spread(q, k, v, gates, starts, tokens, hold, writes)


def in_stretches(x: Tensor, more: int, size: int, before: int, after: int) -> Tensor:
    """x [B, H, n, ..], filled up by `more`, in stretches of `size` with zeros before and after each."""
    x = F.pad(x, (0, 0, 0, more)) if more else x
    return F.pad(x.unflatten(2, (-1, size)), (0, 0, before, after)).flatten(2, 3)


class Sequences(NamedTuple):
    """Rows of a batch, cut where a document begins, as kernels want them: one after the other in a single row."""

    borders: Tensor  # [N + 1] of the N sequences in the row of all B * L steps
    first: Tensor  # [B] which of them begins each row
    last: Tensor  # [B] which of them ends it
    goes_on: Tensor  # [B] whether the first one goes on from the row's state

    def states(self, state: Tensor) -> Tensor:
        """What each sequence begins with [N, ..]: nothing, or its row's state [B, ..]."""
        began = state * self.goes_on.view(-1, *[1] * (state.ndim - 1))
        return (
            torch.zeros_like(state[:1])
            .repeat(len(self.borders) - 1, *[1] * (state.ndim - 1))
            .index_copy(0, self.first, began)
        )


def sequences(starts: Tensor) -> Sequences:
    """From where documents begin [B, L]; a row always begins a sequence."""
    rows, length = starts.shape
    begins = starts.clone()
    begins[:, 0] = True
    counted = begins.flatten().cumsum(0).view(rows, length)
    places = begins.flatten().nonzero()[:, 0]
    borders = torch.cat([places, places.new_tensor([rows * length])])
    return Sequences(borders, counted[:, 0] - 1, counted[:, -1] - 1, ~starts[:, 0])
