"""Entropy of the softmax probabilities, exact, under the mask of the schedule.

    H_t = -sum_s p_ts log p_ts,   p_t = softmax(q_t k / sqrt(K)) over the s that the schedule shows to t

It is 0 if one token has probability 1, and log n if n visible tokens have equal probabilities.  A layer does not return
its probabilities, so they are recomputed for the last queries of each row, a few queries at a time.
"""

import torch
from torch import Tensor

from hqlt_lab.model.batch_layout import TokenPositions
from hqlt_lab.model.hybrid_memory import HybridMemory
from hqlt_lab.ops.memory_schedule import Schedule
from hqlt_lab.ops.precision import at_least_float32, disable_autocast

MAX_QUERIES = 256  # queries per row
QUERIES_PER_CHUNK = 64


def attention_entropy(memory: HybridMemory, x: Tensor, token_positions: TokenPositions) -> Tensor:
    """Return the mean entropy of each head [H] over the last queries of each row.

    The layer reads x [B, T, width] without past tokens.  Padding is ignored.
    """
    assert memory.positions is not None
    q, k, _, _ = memory.project(x, token_positions, None)
    q, k = (memory.positions.rotate(u, token_positions.position) for u in (q, k[:, :, :: memory.writes]))
    position = token_positions.position.expand(len(x), -1)
    lengths = [x.shape[1]] * len(x) if token_positions.row_length is None else token_positions.row_length.tolist()
    with disable_autocast(x):
        q, k = at_least_float32(q) * q.shape[-1] ** -0.5, at_least_float32(k)
        total = torch.zeros_like(q[0, :, 0, 0])
        for row, length in enumerate(lengths):
            for first in range(max(length - MAX_QUERIES, 0), length, QUERIES_PER_CHUNK):
                queries = slice(first, min(first + QUERIES_PER_CHUNK, length))
                total += query_entropies(q[row], k[row], memory.schedule, position[row], queries).sum(-1)
        return total / sum(min(length, MAX_QUERIES) for length in lengths)


def query_entropies(q: Tensor, k: Tensor, schedule: Schedule, position: Tensor, queries: slice) -> Tensor:
    """Return the entropies of these queries of one row [H, Q], for scaled q and k [H, T, K] and position [T]."""
    reach = queries.start if schedule.attention_span is None else schedule.attention_span - 1
    key_index = torch.arange(max(queries.start - reach, 0), queries.stop, device=q.device)  # keys visible to any query
    query_index = torch.arange(queries.start, queries.stop, device=q.device)
    offset = key_index - query_index[:, None]  # [Q, keys], negative: past
    t = position[queries, None]
    visible = schedule.softmax_mask_at(t, t + offset)
    scores = (q[:, queries] @ k[:, key_index].mT).masked_fill(~visible, -torch.inf)
    return torch.special.entr(scores.softmax(-1)).sum(-1)
