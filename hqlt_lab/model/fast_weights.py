"""Fast-weight memory of a layer: which pair is written at which step, with which gates, and what is read when.

There is one step per token.  A step writes the token's own pair or, with `delay`, the pair of an earlier token.  At a
document start the memory is reset, and pairs of earlier documents are not written after it.

**Hold.**  With `hold`, a scan expects hold blocks to begin at multiples of `hold`, but rows and documents may begin
anywhere.  Each token is therefore moved to a slot

    slot mod hold = position mod hold        with each document beginning at the next multiple of hold,

scanned there, with no-op steps in the empty slots, and moved back.  The state that is carried to the next call is the
one from before the current hold block, so a call that continues from a state replays the steps of that block from the
KV cache.  The last, incomplete hold block of a row is not written yet; its tokens stay in the KV cache.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from hqlt_lab.components.feature_maps._base import FeatureMap
from hqlt_lab.components.update_rules._base import UpdateRule
from hqlt_lab.model.batch_layout import TokenPositions, next_position
from hqlt_lab.model.state import CachedTokens, gather_tokens, repeat_groups, take_last
from hqlt_lab.ops.gates import GateTuple, ScanContext, map_gates
from hqlt_lab.ops.memory_schedule import Schedule
from hqlt_lab.ops.precision import at_least_float32


class HoldGrid(NamedTuple):
    """The slots of the tokens of a call in a sequence whose hold blocks begin at multiples of `hold`."""

    token_slots: Tensor  # [B or 1, T] slot of each token
    end_slot: Tensor  # [B or 1, 1] slot after the last token of each row
    hold: int
    is_packed: bool

    @classmethod
    def from_token_positions(cls, token_positions: TokenPositions, hold: int) -> "HoldGrid":
        position = token_positions.position
        slots = position[:, :1] % hold + torch.arange(position.shape[1], device=position.device)
        if token_positions.is_packed:
            # empty slots between the end of a document and the next multiple of hold
            empty_slots = torch.where(position[:, 1:] == 0, (-1 - position[:, :-1]) % hold, 0)
            slots = torch.cat([slots[:, :1], slots[:, 1:] + empty_slots.cumsum(1)], 1)
        return cls(slots, next_position(slots, token_positions.row_length)[:, None], hold, token_positions.is_packed)

    def slot_sources(self, num_replayed: int) -> tuple[Tensor, Tensor]:
        """Return for each slot the index of its step among the replayed steps and those of this call.

        The second tensor is False for slots without a step.
        """
        (rows, tokens), device = self.token_slots.shape, self.token_slots.device
        size = int(self.token_slots.max()) + 1 if self.is_packed else tokens + num_replayed
        # negative slots belong to an earlier hold block and are cut off below
        replayed_slots = self.token_slots[:, :1] + torch.arange(-num_replayed, 0, device=device)
        steps = torch.arange(num_replayed + tokens, device=device).expand(rows, -1)
        source = torch.full((rows, num_replayed + size), -1, device=device)
        slots = torch.cat([replayed_slots, self.token_slots], 1) + num_replayed
        source = source.scatter(1, slots, steps)[:, num_replayed:]
        return source.clamp(min=0), source >= 0

    def complete_slots(self, size: int) -> Tensor:
        """Return [B or 1, size]: True for slots before the incomplete hold block of each row."""
        return torch.arange(size, device=self.token_slots.device) < self.end_slot // self.hold * self.hold


class ScanSteps(NamedTuple):
    """Inputs of a scan, one step per token."""

    q: Tensor  # [B, H, T, K]
    k: Tensor  # [B, H, T * writes, K]
    v: Tensor  # [B, H, T * writes, V]
    gates: GateTuple  # named tuple of [B, H, T * writes, ...]
    valid_mask: Tensor | None  # [B or 1, T] whether there is a pair to write (None: always)
    doc_start: Tensor | None  # [B, T] whether the memory is reset before the step (None: never)

    def gather_steps(self, source: Tensor, is_filled: Tensor) -> "ScanSteps":
        """Reorder the steps: row b gets the steps source[b], and no-op steps where `is_filled` is False."""
        writes = self.k.shape[2] // self.q.shape[2]
        gates = map_gates(lambda gate: gather_tokens(gate, source, writes), self.gates)
        k, v = gather_tokens(self.k, source, writes), gather_tokens(self.v, source, writes)
        valid_mask, doc_start = (
            None if mask is None else is_filled & mask.expand(len(source), -1).gather(1, source)
            for mask in (self.valid_mask, self.doc_start)
        )
        valid_mask = is_filled if valid_mask is None else valid_mask
        return ScanSteps(gather_tokens(self.q, source), k, v, gates, valid_mask, doc_start)


def scan_fast_weights(
    rule: UpdateRule,
    feature_map: FeatureMap,
    schedule: Schedule,
    q: Tensor,
    visible_tokens: CachedTokens,
    gates: GateTuple,
    token_positions: TokenPositions,
    state: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return the reads of the fast weights for q [B, H, T, K], and their new state.

    `visible_tokens` are the cached tokens followed by those of q; `gates` and `token_positions` are those of q.
    """
    hold, dtype = schedule.hold, q.dtype
    num_replayed = 0 if hold is None or state is None else hold - 1  # steps of the incomplete hold block, at most
    # at least float32: a unit key rounded to bfloat16 no longer has length 1, and with beta = 2 the memory would grow
    q = feature_map(at_least_float32(q)) * (q.shape[-1] ** -0.5 if rule.scales_queries else 1.0)
    steps = align_writes(schedule, q, visible_tokens, gates, rule.writes, token_positions, num_replayed)
    k = repeat_groups(feature_map(at_least_float32(steps.k)), q.shape[1])
    steps = steps._replace(k=k, v=repeat_groups(steps.v, q.shape[1]))
    if hold is None:
        context = ScanContext(None, steps.valid_mask, steps.doc_start)
        reads, state = rule.scan(steps.q, steps.k, steps.v, steps.gates, state, context)
        return reads.to(dtype), state
    grid = HoldGrid.from_token_positions(token_positions, hold)
    uses_slots = num_replayed > 0 or token_positions.is_packed
    if uses_slots:
        steps = steps.gather_steps(*grid.slot_sources(num_replayed))
    is_complete = grid.complete_slots(steps.q.shape[2])
    valid_mask = is_complete if steps.valid_mask is None else steps.valid_mask & is_complete
    context = ScanContext(hold, valid_mask, steps.doc_start)
    reads, state = rule.scan(steps.q, steps.k, steps.v, steps.gates, state, context)
    return (gather_tokens(reads, grid.token_slots) if uses_slots else reads).to(dtype), state


def align_writes(
    schedule: Schedule,
    q: Tensor,
    visible_tokens: CachedTokens,
    gates: GateTuple,
    writes: int,
    token_positions: TokenPositions,
    num_replayed: int,
) -> ScanSteps:
    """Return the steps of this call after `num_replayed` earlier ones, whose queries are not needed any more."""
    length = q.shape[2] + num_replayed
    pairs = visible_tokens.last_writes(length * writes, schedule.delay * writes)
    step_gates: GateTuple | None = gates
    if schedule.delay and schedule.gates == "own":
        step_gates = pairs.gates
    elif num_replayed:
        step_gates = visible_tokens.last_writes(length * writes).gates
    assert step_gates is not None  # cached whenever the schedule needs them later (Schedule.needs_gate_cache)
    position = token_positions.position
    if num_replayed:
        position = torch.cat([position[:, :1] + torch.arange(-num_replayed, 0, device=q.device), position], 1)
    valid_mask = position >= schedule.delay if schedule.delay or num_replayed else None
    if token_positions.row_length is not None:
        is_token = torch.arange(-num_replayed, q.shape[2], device=q.device) < token_positions.row_length[:, None]
        valid_mask = is_token if valid_mask is None else valid_mask & is_token
    doc_start = position == 0 if token_positions.is_packed else None
    return ScanSteps(take_last(q, length), pairs.k, pairs.v, step_gates, valid_mask, doc_start)
