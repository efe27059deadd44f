"""How many bytes one layer carries from token to token, for one row of the batch."""

from typing import Any, NamedTuple

import torch

from hqlt_lab.model.memory import HybridMemory
from hqlt_lab.ops.steps import PLAIN


class StateSize(NamedTuple):
    """Bytes, by the fields of `MemoryState`; the ring's gates apart."""

    ring: int
    gates: int
    fw: int
    conv: int
    count: int  # type: ignore[assignment]  # hides tuple.count

    @property
    def total(self) -> int:
        return sum(self)


def state_size(memory: HybridMemory, context: int, dtype: torch.dtype) -> StateSize:
    """After `context` tokens, activations being of that type."""
    held = context if memory.room is None else memory.room
    per_token = memory.to_k.out_features + memory.to_v.out_features
    convolutions: Any = memory.convolutions or ()
    conv = sum(one.in_channels * (one.kernel_size[0] - 1) for one in convolutions)
    gates, fw = (0, 0) if memory.update_rule is None else of_rule(memory, dtype)
    waiting = held * gates if memory.schedule.keeps_gates else 0
    return StateSize(held * per_token * dtype.itemsize, waiting, fw, conv * dtype.itemsize, torch.long.itemsize)


def of_rule(memory: HybridMemory, dtype: torch.dtype) -> tuple[int, int]:
    """Bytes of the gates of one token and of the fast weights, from a scan of one token."""
    rule: Any = memory.update_rule
    x = memory.to_q.weight.new_zeros(1, 1, memory.to_q.in_features, dtype=dtype)
    pairs = x.unflatten(-1, (memory.heads, -1)).transpose(1, 2)  # [1, H, 1, K]
    wide = torch.promote_types(dtype, torch.float32)
    k = pairs.to(wide).expand(-1, -1, rule.writes, -1)
    with torch.no_grad():
        gates = rule.gates(x)
        _, state = rule.scan(pairs.to(wide), k, k, gates, None, PLAIN)
    return sum(gate.nbytes for gate in gates if gate is not None), state.nbytes
