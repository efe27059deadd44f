"""The fast weights' side of a layer: which pair is written at which step, with whose gates, and what is read when.

A step per token: the pair that arrives with it (its own, or the one `delay` back) and the gates that write it.  Where
a document begins the memory is emptied, and no pair of an earlier document arrives after that.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hqlt_lab.model.layout import Places
from hqlt_lab.model.state import Tokens, last, moved
from hqlt_lab.model.stretches import Stretches
from hqlt_lab.ops.schedule import Schedule
from hqlt_lab.ops.steps import Course, each, precise


class Steps(NamedTuple):
    """What a rule scans, one step per token."""

    q: Tensor  # [B, H, T, K]
    k: Tensor  # [B, H, T * writes, K]
    v: Tensor  # [B, H, T * writes, V]
    gates: Any  # named tuple of [B, H, T * writes]
    real: Tensor | None  # [B or 1, T]: whether there is a pair to write; None: always
    starts: Tensor | None  # [B, T]: before such a step the memory is emptied; None: never

    def moved(self, source: Tensor, inside: Tensor) -> "Steps":
        """Row b has the steps source[b], in that order; where they are not `inside`, nothing happens."""
        writes = self.k.shape[2] // self.q.shape[2]
        gates = each(lambda gate: moved(gate, source, writes), self.gates)
        k, v = moved(self.k, source, writes), moved(self.v, source, writes)
        real, starts = (
            None if at is None else inside & at.expand(len(source), -1).gather(1, source)
            for at in (self.real, self.starts)
        )
        return Steps(moved(self.q, source), k, v, gates, inside if real is None else real, starts)


def recall(
    rule: Any,
    feature_map: nn.Module,
    schedule: Schedule,
    q: Tensor,
    seen: Tokens,
    gates: Any,
    places: Places,
    state: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The answer of the fast weights to q [B, H, T, K], and their new state.

    `seen` ends with the tokens of q; `gates` and `places` are theirs.
    """
    hold, dtype = schedule.hold, q.dtype
    again = 0 if hold is None or state is None else hold - 1  # steps of the unfinished stretch, at most
    # features in float32 at least: a unit key rounded to bfloat16 is not one, and with beta = 2 the memory would grow
    q = feature_map(precise(q)) * q.shape[-1] ** -0.5
    steps = arrivals(schedule, q, seen, gates, rule.writes, places, again)
    steps = steps._replace(k=feature_map(precise(steps.k)))
    if hold is None:
        read, state = rule.scan(*steps[:4], state, Course(None, steps.real, steps.starts))
        return read.to(dtype), state
    stretches = Stretches.of(places, hold)
    if again or places.packed:
        steps = steps.moved(*stretches.sources(again))
    whole = stretches.whole(steps.q.shape[2])
    real = whole if steps.real is None else steps.real & whole
    read, state = rule.scan(*steps[:4], state, Course(hold, real, steps.starts))
    return (moved(read, stretches.grid) if again or places.packed else read).to(dtype), state


def arrivals(schedule: Schedule, q: Tensor, seen: Tokens, gates: Any, writes: int, places: Places, again: int) -> Steps:
    """The steps of this call, and before them `again` older ones, for whose queries nobody asks any more."""
    length = q.shape[2] + again
    pairs = seen.last(length * writes, schedule.delay * writes)
    if schedule.delay and schedule.gates == "travel":
        gates = pairs.gates
    elif again:
        gates = seen.last(length * writes).gates
    place = places.place
    if again:
        place = torch.cat([place[:, :1] + torch.arange(-again, 0, device=q.device), place], 1)
    real = place >= schedule.delay if schedule.delay or again else None
    if places.length is not None:
        tokens = torch.arange(-again, q.shape[2], device=q.device) < places.length[:, None]
        real = tokens if real is None else real & tokens
    return Steps(last(q, length), pairs.k, pairs.v, gates, real, place == 0 if places.packed else None)
