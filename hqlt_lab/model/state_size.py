"""How many bytes a layer remembers, declared without running it.

    ring     room * writes * heads * (K + V)      raw keys and values; room = all that softmax sees or that waits
    gates    room * writes * heads * gates        only where they wait or travel
    fw       heads * K * V'                       float32 at least; V' = V, one more with a normaliser
    conv     (taps - 1) * channels of q, k and v
    count    one integer

The conformance kit compares it with what is measured.
"""

from copy import deepcopy
from typing import NamedTuple

import torch

from hqlt_lab.model.memory import HybridMemory


class StateSize(NamedTuple):
    """Bytes for one row of one layer."""

    ring: int
    gates: int
    fw: int
    conv: int
    count: int  # type: ignore[assignment]  # hides tuple.count

    @property
    def total(self) -> int:
        return sum(self)


def state_size(memory: HybridMemory, context: int, dtype: torch.dtype = torch.float32) -> StateSize:
    """After `context` tokens of a document, where the layer computes in `dtype`.  The memory may be on meta."""
    size = memory.to_q.out_features // memory.heads  # K and V
    room = context if memory.room is None else memory.room
    fw = 0
    if memory.update_rule is not None:
        precise = torch.promote_types(dtype, torch.float32)
        fw = memory.heads * size * memory.update_rule.value_channels(size) * precise.itemsize
    return StateSize(
        ring=room * memory.writes * memory.heads * 2 * size * dtype.itemsize,
        gates=room * gate_bytes(memory, dtype),
        fw=fw,
        conv=convolution_inputs(memory) * dtype.itemsize,
        count=torch.long.itemsize,
    )


@torch.no_grad()
def gate_bytes(memory: HybridMemory, dtype: torch.dtype) -> int:
    """Of one token's gates in the ring: which gates a rule has, and how precise, is seen from those of a token."""
    if memory.update_rule is None or not memory.schedule.keeps_gates:
        return 0
    rule = deepcopy(memory.update_rule).to(dtype)
    token = torch.zeros(1, 1, memory.to_q.in_features, dtype=dtype, device=memory.to_q.weight.device)
    return sum(gate.numel() * gate.element_size() for gate in rule.gates(token) if gate is not None)


def convolution_inputs(memory: HybridMemory) -> int:
    """Numbers that the short convolutions hand on."""
    return sum(one.in_channels * (one.taps - 1) for one in memory.convolutions or ())  # type: ignore[misc, operator]
