"""Step-by-step scan of a fast-weight memory: the reference implementation.

It follows the equations directly and is slow; every fast implementation is compared with it.  Rules that are not
linear in their state are scanned here too, by their own `step`.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from hqlt_lab.ops.gates import (
    DEFAULT_CONTEXT,
    Gates,
    GateTuple,
    ScanContext,
    fill_first_lookups,
    fill_last_values,
    linear_step,
    look_up,
    map_gates,
)
from hqlt_lab.ops.precision import at_least_float32, disable_autocast

StepFunction = Callable[[Tensor, Tensor, Tensor, Any], Tensor]  # (state, k, v, gates) -> state
ReadFunction = Callable[[Tensor, Tensor], Tensor]  # (state, q) -> output


def read_state(state: Tensor, q: Tensor) -> Tensor:
    """Read a linear memory.  state [B, H, K, V], q [B, H, K] -> [B, H, V]."""
    return look_up(state, q)


def recurrent_scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gates: GateTuple,
    state: Tensor | None = None,
    context: ScanContext = DEFAULT_CONTEXT,
    *,
    step: StepFunction = linear_step,
    read: ReadFunction = read_state,
) -> tuple[Tensor, Tensor]:
    """Write, then read, token by token.  Return the reads [B, H, T, V] and the state after the last token.

    q [B, H, T, K]; k, v [B, H, T * writes, K|V]; gates of [B, H, T * writes, ...]; state [B, H, K, V] (None: empty).
    """
    hold, valid_mask, doc_start = context
    with disable_autocast(q):
        dtype, writes = q.dtype, k.shape[2] // q.shape[2]
        q, k, v = at_least_float32(q), at_least_float32(k), at_least_float32(v)
        gates = map_gates(at_least_float32, gates)
        if isinstance(gates, Gates):
            gates, v = fill_first_lookups(gates, q.shape[2], writes), fill_last_values(v, k)
        if state is None:
            state = k.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1])
        held_state, reads = state, []
        for t in range(q.shape[2]):
            if doc_start is not None:
                state = state.masked_fill(doc_start[:, t, None, None, None], 0.0)
            if hold is not None and t % hold == 0:
                held_state = state
            for i in range(t * writes, (t + 1) * writes):
                step_gates = map_gates(itemgetter((slice(None), slice(None), i)), gates)
                new_state = step(state, k[:, :, i], v[:, :, i], step_gates)
                if valid_mask is not None:
                    new_state = torch.where(valid_mask[:, t, None, None, None], new_state, state)
                state = new_state
            reads.append(read(state if hold is None else held_state, q[:, :, t]))
        return torch.stack(reads, 2).to(dtype), state
