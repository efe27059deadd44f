"""The truth about a fast-weight memory: one step at a time, as the equations are written.

Slow, obvious, and the measure of everything fast.  A rule that is not linear in its state runs here too: all it gives
is `step`.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from hqlt_lab.ops.steps import PLAIN, Course, each, linear_step, no_autocast, precise

Step = Callable[[Tensor, Tensor, Tensor, Any], Tensor]
Read = Callable[[Tensor, Tensor], Tensor]


def recall(state: Tensor, q: Tensor) -> Tensor:
    """What the memory answers to q.  state [B, H, K, V], q [B, H, K] -> [B, H, V]."""
    return (q[..., None, :] @ state).squeeze(-2)


def recurrent(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gates: Any,
    state: Tensor | None = None,
    course: Course = PLAIN,
    *,
    step: Step = linear_step,
    read: Read = recall,
) -> tuple[Tensor, Tensor]:
    """Write, then read, token by token."""
    hold, real, starts = course
    with no_autocast(q):
        dtype, writes = q.dtype, k.shape[2] // q.shape[2]
        q, k, v, gates = precise(q), precise(k), precise(v), each(precise, gates)
        if state is None:
            state = k.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1])
        held, reads = state, []
        for t in range(q.shape[2]):
            if starts is not None:
                state = state.masked_fill(starts[:, t, None, None, None], 0.0)
            if hold is not None and t % hold == 0:
                held = state
            for i in range(t * writes, (t + 1) * writes):
                new = step(state, k[:, :, i], v[:, :, i], each(itemgetter((slice(None), slice(None), i)), gates))
                state = new if real is None else torch.where(real[:, t, None, None, None], new, state)
            reads.append(read(state if hold is None else held, q[:, :, t]))
        return torch.stack(reads, 2).to(dtype), state
