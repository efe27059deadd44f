"""The fast weights' side of a layer: which pair is written at which step, with whose gates, and what is read when.

A step per token: the pair that arrives with it (its own, or the one `delay` back) and the gates that write it.  With
`hold` the carried state is the one before the current stretch, so a call that goes on from a state repeats the steps
of that stretch: up to hold - 1 of them, taken from the ring.  Rows may stand at different places of their stretch;
each is moved to where its stretch begins, scanned there, and moved back.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hqlt_lab.model.state import Tokens, last
from hqlt_lab.ops.schedule import Schedule
from hqlt_lab.ops.steps import Course, each, precise


class Steps(NamedTuple):
    """What a rule scans, one step per token."""

    q: Tensor  # [B, H, T, K]
    k: Tensor  # [B, H, T * writes, K]
    v: Tensor  # [B, H, T * writes, V]
    gates: Any  # named tuple of [B, H, T * writes]
    real: Tensor | None  # [B or 1, T]: whether there is a pair to write; None: always

    def moved(self, place: Tensor, inside: Tensor) -> "Steps":
        """Row b has the steps place[b], in that order; where they are not `inside`, nothing is written."""
        writes = self.k.shape[2] // self.q.shape[2]
        gates = each(lambda gate: moved(gate, place, writes), self.gates)
        k, v = moved(self.k, place, writes), moved(self.v, place, writes)
        real = inside if self.real is None else inside & self.real.expand(len(place), -1).gather(1, place)
        return Steps(moved(self.q, place), k, v, gates, real)


def recall(
    rule: Any,
    feature_map: nn.Module,
    schedule: Schedule,
    q: Tensor,
    seen: Tokens,
    gates: Any,
    count: Tensor | None,
    state: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The answer of the fast weights to q [B, H, T, K], and their new state.

    `seen` ends with the tokens of q; `gates` are theirs; `count` [B] is how many tokens came before (None: none did).
    """
    length, hold, dtype = q.shape[2], schedule.hold, q.dtype
    again = 0 if hold is None or count is None else hold - 1
    # features in float32 at least: a unit key rounded to bfloat16 is not one, and with beta = 2 the memory would grow
    q = feature_map(precise(q)) * q.shape[-1] ** -0.5
    steps, place = arrivals(schedule, last(q, length + again), seen, gates, rule.writes, count, again)
    steps = steps._replace(k=feature_map(precise(steps.k)))
    if hold is None:
        read, state = rule.scan(*steps[:4], state, Course(real=steps.real))
        return read.to(dtype), state
    end = place[:, -1:] + 1
    unfinished = place >= end // hold * hold  # a stretch waits for its last token; nobody reads it before
    real = ~unfinished if steps.real is None else steps.real & ~unfinished
    if not again:
        read, state = rule.scan(*steps[:4], state, Course(hold, real))
        return read.to(dtype), state
    waiting = place[:, again, None] % hold  # [B, 1] tokens of the stretch that were there before this call
    there = again - waiting + torch.arange(length + again, device=q.device)
    inside = there < length + again
    steps = steps._replace(real=real).moved(there.clamp(max=length + again - 1), inside)
    read, state = rule.scan(*steps[:4], state, Course(hold, steps.real))
    return moved(read, waiting + torch.arange(length, device=q.device)).to(dtype), state


def arrivals(
    schedule: Schedule, q: Tensor, seen: Tokens, gates: Any, writes: int, count: Tensor | None, again: int
) -> tuple[Steps, Tensor]:
    """The latest steps, `again` of them older than this call, and their places in the text [B or 1, steps]."""
    length = q.shape[2]
    pairs = seen.last(length * writes, schedule.delay * writes)
    if schedule.delay and schedule.gates == "travel":
        gates = pairs.gates
    elif again:
        gates = seen.last(length * writes).gates
    start = torch.zeros(1, 1, dtype=torch.long, device=q.device) if count is None else count[:, None]
    place = start - again + torch.arange(length, device=q.device)
    real = place >= schedule.delay if schedule.delay or again else None
    return Steps(q, pairs.k, pairs.v, gates, real), place


def moved(u: Tensor, place: Tensor, writes: int = 1) -> Tensor:
    """Row b holds u's tokens place[b], in that order, along dimension 2."""
    place = (place[:, :, None] * writes + torch.arange(writes, device=u.device)).flatten(1)  # [B, T * writes]
    place = place.reshape(len(place), 1, -1, *[1] * (u.dim() - 3))
    return u.gather(2, place.expand(len(u), u.shape[1], -1, *u.shape[3:]))
