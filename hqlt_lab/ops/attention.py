"""Softmax attention under a schedule, at the cost of what it sees: O(T * window), not O(T^2).

    kv_t = sum_s softmax_s(q_t . k_s / sqrt(K)) v_s        over the s that the schedule shows to t

`attend_dense` is the truth, one mask over everything.  `attend` picks the cheapest form that does the same: a block
folds into the batch; a window is cut into bands of queries, each against the keys its window can reach. Keys may
begin before the queries: `k` holds the tokens in the cache, then those of `q`; `count` [B] says how many tokens a row
had seen before, so that places in the cache where no token ever was are not looked at.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.ops.schedule import Schedule

Form = Literal["causal", "dense", "blocks", "bands"]
BAND = 32  # queries in a band, at least: narrower matrices waste a processor


def attend(q: Tensor, k: Tensor, v: Tensor, schedule: Schedule, count: Tensor | None = None) -> Tensor:
    """q [B, H, T, K]; k, v [B, H, P + T, K|V] -> [B, H, T, V]."""
    match form(schedule, q.shape[2], k.shape[2]):
        case "causal":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        case "dense":
            return attend_dense(q, k, v, schedule, count)
        case "blocks":
            return _attend_blocks(q, k, v, schedule)
        case "bands":
            return _attend_bands(q, k, v, schedule, count)


def form(schedule: Schedule, queries: int, keys: int) -> Form:
    """The cheapest way to attend; also told of a run, so that it is known what computed it."""
    span, past = schedule.span, keys - queries
    if past == 0 and (span is None or (schedule.block is None and span >= queries)):
        return "causal"
    if span is None or keys <= span + BAND:
        return "dense"
    return "blocks" if past == 0 and schedule.block == span else "bands"


def attend_dense(q: Tensor, k: Tensor, v: Tensor, schedule: Schedule, count: Tensor | None = None) -> Tensor:
    """One mask over all queries and keys."""
    start = _start(q, k, count)  # [B or 1, 1]
    t = start + torch.arange(q.shape[2], device=q.device)
    s = start + torch.arange(q.shape[2] - k.shape[2], q.shape[2], device=q.device)
    sees = schedule.softmax_sees_at(t[:, :, None], s[:, None, :])  # [B or 1, T, P + T]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=sees[:, None])


def _attend_blocks(q: Tensor, k: Tensor, v: Tensor, schedule: Schedule) -> Tensor:
    """Blocks know nothing of each other, so each is a row of the batch."""
    length, block = q.shape[2], schedule.block
    assert block is not None
    q, k, v = (F.pad(x, (0, 0, 0, -length % block)).unflatten(2, (-1, block)).flatten(1, 2) for x in (q, k, v))
    seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return seen.unflatten(1, (-1, -(-length // block))).flatten(2, 3)[:, :, :length]


def _attend_bands(q: Tensor, k: Tensor, v: Tensor, schedule: Schedule, count: Tensor | None) -> Tensor:
    """A band of `wide` queries reaches the `wide + span - 1` keys that end with its last query."""
    span = schedule.span
    assert span is not None
    length, past, wide, before = q.shape[2], k.shape[2] - q.shape[2], max(span, BAND), span - 1
    tail = -length % wide
    start = _start(q, k, count)
    q = F.pad(q, (0, 0, 0, tail)).unflatten(2, (-1, wide))  # [B, H, N, wide, K]
    k, v = (
        F.pad(x, (0, 0, before - past, tail)).unfold(2, wide + before, wide) for x in (k, v)
    )  # [B, H, N, K|V, reach]
    first = start[:, :, None] + torch.arange(q.shape[2], device=q.device)[:, None] * wide  # [B or 1, N, 1]
    t = first + torch.arange(wide, device=q.device)
    s = first + torch.arange(-before, wide, device=q.device)
    sees = schedule.softmax_sees_at(t[..., :, None], s[..., None, :])  # [B or 1, N, wide, reach]
    scores = (q * q.shape[-1] ** -0.5) @ k  # scaled before the product: float16 overflows early
    scores = scores.masked_fill(~sees[:, None], -torch.inf)
    return (scores.softmax(-1).to(v.dtype) @ v.mT).flatten(2, 3)[:, :, :length]


def _start(q: Tensor, k: Tensor, count: Tensor | None) -> Tensor:
    """The position of the first query [B or 1, 1]; without a count, every key is a token."""
    past = k.shape[2] - q.shape[2]
    return torch.tensor([[past]], device=q.device) if count is None else count[:, None]
