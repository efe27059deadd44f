"""Entropy of the softmax probabilities, exact, under the mask of the schedule.

    H_t = -sum_s p_ts log p_ts,   p_t = softmax(q_t k / sqrt(K) + c_t - c_s) over the s that the schedule shows to t

c is the sum of log forget gates, or 0.  H is 0 if one token has probability 1, and log n if n visible tokens have equal
probabilities.  A layer does not return its probabilities, so they are recomputed for the last queries of each row, a
few queries at a time.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from hqlt_lab.model.batch_layout import TokenPositions
from hqlt_lab.model.hybrid_memory import HybridMemory
from hqlt_lab.model.softmax_memory import make_inputs, make_tokens
from hqlt_lab.ops.gates import OptionalTensor
from hqlt_lab.ops.memory_schedule import Schedule
from hqlt_lab.ops.precision import at_least_float32, disable_autocast

MAX_QUERIES = 256  # queries per row
QUERIES_PER_CHUNK = 64


class RowInputs(NamedTuple):
    """Inputs of softmax for one row."""

    q: Tensor  # [H, T, K] scaled
    k: Tensor  # [H, T, K]
    decay: OptionalTensor  # [H, T]
    position: Tensor  # [T]


def attention_entropy(memory: HybridMemory, x: Tensor, token_positions: TokenPositions, valid_mask: Tensor) -> Tensor:
    """Return the mean entropy of each head [H] over the last queries of each row.

    The layer reads x [B, T, width] without past tokens.  Queries that are not valid [B, T] are left out.
    """
    assert memory.attention is not None and memory.positions is not None
    q, k, v, _ = memory.projections_of("kv").project(x, token_positions, None)
    tokens = make_tokens(memory.attention, x, k[:, :, :: memory.kv_writes], v[:, :, :: memory.kv_writes], None)
    t = token_positions.position
    inputs = make_inputs(memory.attention, memory.positions, memory.schedule, x, q, tokens, t, None)
    position = t.expand(len(x), -1)
    count = torch.arange(1, x.shape[1] + 1, device=x.device)
    lengths = (count * valid_mask).amax(1).tolist()
    with disable_autocast(x):
        q, k = at_least_float32(inputs.q) * inputs.q.shape[-1] ** -0.5, at_least_float32(inputs.k)
        total, num_queries = torch.zeros_like(q[0, :, 0, 0]), torch.zeros_like(valid_mask[0, 0], dtype=torch.long)
        for row, length in enumerate(lengths):
            row_inputs = RowInputs(q[row], k[row], None if tokens.decay is None else tokens.decay[row], position[row])
            for first in range(max(length - MAX_QUERIES, 0), length, QUERIES_PER_CHUNK):
                queries = slice(first, min(first + QUERIES_PER_CHUNK, length))
                is_valid = valid_mask[row, queries]
                total += query_entropies(row_inputs, memory.schedule, queries).where(is_valid, 0.0).sum(-1)
                num_queries += is_valid.sum()
        return total / num_queries


def query_entropies(row: RowInputs, schedule: Schedule, queries: slice) -> Tensor:
    """Return the entropies of these queries of one row [H, Q]."""
    limited = schedule.attention_span is not None and not schedule.sinks
    reach = (schedule.attention_span or 1) - 1 if limited else queries.start
    device = row.q.device
    key_index = torch.arange(max(queries.start - reach, 0), queries.stop, device=device)  # keys visible to any query
    query_index = torch.arange(queries.start, queries.stop, device=device)
    offset = key_index - query_index[:, None]  # [Q, keys], negative: past
    t = row.position[queries, None]
    visible = schedule.softmax_mask_at(t, t + offset)
    scores = row.q[:, queries] @ row.k[:, key_index].mT
    if row.decay is not None:
        scores = scores + (row.decay[:, queries, None] - row.decay[:, None, key_index]).to(scores.dtype)
    return torch.special.entr(scores.masked_fill(~visible, -torch.inf).softmax(-1)).sum(-1)
