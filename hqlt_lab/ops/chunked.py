"""The fast way to a linear memory: parallel inside a chunk, recurrent between chunks.

    pieces             where the text is cut
    fading             what is left of what inside a chunk
    chunk              one chunk: a triangular system and a few products
    chunk_backward     its gradients
    text, scan         all chunks of all rows, as an operator

Yang et al. 2024, arXiv:2406.06484 (delta rule); arXiv:2412.06464 (with keeps).
"""

import torch
from torch import Tensor

from hqlt_lab.ops.recurrent import recurrent
from hqlt_lab.ops.scan import scan
from hqlt_lab.ops.steps import PLAIN, Course, Gates, each, forward_mode, no_autocast, precise

CHUNK = 64  # writes that are solved together


def chunked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gates: Gates,
    state: Tensor | None = None,
    course: Course = PLAIN,
    *,
    chunk: int = CHUNK,
) -> tuple[Tensor, Tensor]:
    """What `recurrent` does with `linear_step`, values and gradients; the arguments are the same."""
    if q.shape[2] == 1 or forward_mode():  # one token has nothing to be parallel in
        return recurrent(q, k, v, gates, state, course)
    with no_autocast(q):
        dtype, writes, one = q.dtype, k.shape[2] // q.shape[2], gates.write is gates.erase
        q, k, v, gates = precise(q), precise(k), precise(v), each(precise, gates)
        k, v, gates = neutral_where_unreal(k, v, gates, course.real, writes)
        starts = None if course.starts is None else course.starts.expand(len(q), -1)
        inputs = (q, k, v, gates.log_keep, gates.erase, None if one else gates.write, state)
        keep = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
        reads, last, *_ = scan(*inputs, starts, course.hold or 0, chunk, one, keep)
        return reads.to(dtype), last


def neutral_where_unreal(
    k: Tensor, v: Tensor, gates: Gates, real: Tensor | None, writes: int
) -> tuple[Tensor, Tensor, Gates]:
    """A zero key with nothing fading is a step that never was, whatever stood there."""
    if real is None:
        return k, v, gates
    unreal = ~real.repeat_interleave(writes, 1)[:, None]  # [B, 1, T * writes]
    log_keep = None if gates.log_keep is None else gates.log_keep.masked_fill(unreal, 0.0)
    k, v = (x.masked_fill(unreal[..., None], 0.0) for x in (k, v))
    return k, v, gates._replace(log_keep=log_keep)
