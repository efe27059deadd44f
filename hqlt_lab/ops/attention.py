"""Softmax attention under a schedule, at the cost of what it sees: O(T * window), not O(T^2).

    kv_t = sum_s softmax_s(q_t . k_s / sqrt(K)) v_s        over the s that the schedule shows to t

`attend_dense` is the truth, one mask over everything.  `attend` has it done by a backend (`ops.backends`).  The lab's
own, `blocks`, picks the cheapest form that does the same: a block folds into the batch; a window is cut into bands of
queries, each against the keys its window can reach, all at once or on a CPU a few at a time (`windowed`).

Keys may begin before the queries: `k` holds the tokens in the cache, then those of `q`.  `place` [B, T] says how many
tokens of its document each query has before it: a key i - j back from query i is at place_i - (i - j), and where that
is negative it is of another document, or a place in the cache where no token ever was.  Neither is looked at.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.ops.backends import ATTENTIONS
from hqlt_lab.ops.choosing import Job, advise, choose
from hqlt_lab.ops.schedule import Schedule
from hqlt_lab.ops.steps import forward_mode
from hqlt_lab.ops.windowed import windowed

Form = Literal["causal", "dense", "blocks", "bands"]
BAND = 32  # queries in a band, at least: narrower matrices waste a processor


def attend(
    q: Tensor, k: Tensor, v: Tensor, schedule: Schedule, place: Tensor | None = None, backend: str = "auto"
) -> Tensor:
    """q [B, H, T, K]; k, v [B, H, P + T, K|V]; place [B or 1, T] (None: every key is of one text) -> [B, H, T, V]."""
    job = job_of(schedule, q, k, v, place)
    match advise("softmax", choose(ATTENTIONS, backend, job)).name:
        case "flash_attn":
            from hqlt_lab.ops.flash import attend_by_flash

            return attend_by_flash(q, k, v, schedule, place)
        case "flex":
            from hqlt_lab.ops.flex import attend_by_flex

            return attend_by_flex(q, k, v, schedule, place)
        case "sdpa":
            return attend_by_sdpa(q, k, v, schedule, place)
        case "dense":
            return attend_dense(q, k, v, schedule, place)
        case _:
            return attend_in_blocks(q, k, v, schedule, place)


def job_of(schedule: Schedule, q: Tensor, k: Tensor, v: Tensor, place: Tensor | None) -> Job:
    """What a backend has to know of it."""
    documents, past = place is not None, k.shape[2] > q.shape[2]
    masked = is_masked(schedule, q.shape[2], k.shape[2], documents)
    learning = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    obstacle = "derivatives are taken forwards" if forward_mode() else ""
    return Job(q.device.type, v.dtype, k.shape[3], v.shape[3], documents, masked, past, learning, obstacle)


def is_masked(schedule: Schedule, queries: int, keys: int, documents: bool) -> bool:
    """Whether there is more to hide than what is to come."""
    return form(schedule, queries, keys, documents) not in ("causal", "blocks")


def attend_by_sdpa(q: Tensor, k: Tensor, v: Tensor, schedule: Schedule, place: Tensor | None = None) -> Tensor:
    """By torch's own attention, whatever the mask costs."""
    match form(schedule, q.shape[2], k.shape[2], place is not None):
        case "causal":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        case "blocks":
            return _attend_blocks(q, k, v, schedule)
        case _:
            return attend_dense(q, k, v, schedule, place)


def attend_in_blocks(q: Tensor, k: Tensor, v: Tensor, schedule: Schedule, place: Tensor | None = None) -> Tensor:
    """By the lab's own forms."""
    match form(schedule, q.shape[2], k.shape[2], place is not None):
        case "causal":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        case "dense":
            return attend_dense(q, k, v, schedule, place)
        case "blocks":
            return _attend_blocks(q, k, v, schedule)
        case "bands" if in_cache(q):
            assert schedule.span is not None
            return windowed(q, k, v, schedule, place, wide_of(schedule.span))
        case "bands":
            return _attend_bands(q, k, v, schedule, place)


def form(schedule: Schedule, queries: int, keys: int, placed: bool = False) -> Form:
    """The cheapest way to attend; also told of a run, so that it is known what computed it."""
    span, whole = schedule.span, keys == queries and not placed
    if whole and (span is None or (schedule.block is None and span >= queries)):
        return "causal"
    if span is None:
        return "dense"
    if whole and schedule.block == span < keys:
        return "blocks"
    return "dense" if queries * keys <= scores_in_bands(queries, span) else "bands"


def in_cache(q: Tensor) -> bool:
    """Whether bands are taken a few at a time."""
    return q.device.type == "cpu" and q.dtype in (torch.float32, torch.float64) and not forward_mode()


def wide_of(span: int) -> int:
    """Queries in a band: as many as the window, so that a key is in two bands at most."""
    return max(span, BAND)


def scores_in_bands(queries: int, span: int) -> int:
    """Of whole bands, each against the keys it reaches."""
    return -(-queries // wide_of(span)) * wide_of(span) * (wide_of(span) + span - 1)


def attend_dense(q: Tensor, k: Tensor, v: Tensor, schedule: Schedule, place: Tensor | None = None) -> Tensor:
    """One mask over all queries and keys."""
    t = _places(q, k, place)[:, :, None]
    back = torch.arange(k.shape[2], device=q.device) - _queries(q, k)[:, None]  # [T, P + T], negative: before
    sees = schedule.softmax_sees_at(t, t + back)  # [B or 1, T, P + T]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=sees[:, None])


def _attend_blocks(q: Tensor, k: Tensor, v: Tensor, schedule: Schedule) -> Tensor:
    """Blocks know nothing of each other, so each is a row of the batch."""
    length, block = q.shape[2], schedule.block
    assert block is not None
    q, k, v = (F.pad(x, (0, 0, 0, -length % block)).unflatten(2, (-1, block)).flatten(1, 2) for x in (q, k, v))
    seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return seen.unflatten(1, (-1, -(-length // block))).flatten(2, 3)[:, :, :length]


def _attend_bands(q: Tensor, k: Tensor, v: Tensor, schedule: Schedule, place: Tensor | None) -> Tensor:
    """A band of `wide` queries reaches the `wide + span - 1` keys that end with its last query."""
    span = schedule.span
    assert span is not None
    length, past, wide, before = q.shape[2], k.shape[2] - q.shape[2], wide_of(span), span - 1
    tail = -length % wide
    t = F.pad(_places(q, k, place), (0, tail)).unflatten(1, (-1, wide))[..., None]  # [B or 1, N, wide, 1]
    q = F.pad(q, (0, 0, 0, tail)).unflatten(2, (-1, wide))  # [B, H, N, wide, K]
    k, v = (
        F.pad(x, (0, 0, before - past, tail)).unfold(2, wide + before, wide) for x in (k, v)
    )  # [B, H, N, K|V, reach]
    row = torch.arange(-before, wide, device=q.device)
    sees = schedule.softmax_sees_at(t, t + row - row[before:, None])  # [B or 1, N, wide, reach]
    scores = (q * q.shape[-1] ** -0.5) @ k  # scaled before the product: float16 overflows early
    scores = scores.masked_fill(~sees[:, None], -torch.inf)
    return (scores.softmax(-1).to(v.dtype) @ v.mT).flatten(2, 3)[:, :, :length]


def _places(q: Tensor, k: Tensor, place: Tensor | None) -> Tensor:
    """Of the queries [B or 1, T]; if none are given, every key is a token of one text."""
    return _queries(q, k)[None] if place is None else place


def _queries(q: Tensor, k: Tensor) -> Tensor:
    """Which of the keys are those of the queries [T]."""
    return torch.arange(k.shape[2] - q.shape[2], k.shape[2], device=q.device)
