"""Softmax attention under a schedule, at a cost of O(T * window) instead of O(T^2).

    kv_t = sum_s softmax_s(q_t . k_s / sqrt(K)) v_s        over the s that the schedule shows to t

`attend_dense` is the reference, with one mask over all pairs.  `attend` runs on the backend that `ops.dispatch` picks.
Our own backend, `blocks`, uses the cheapest equivalent form: blocks are folded into the batch; a window is cut into
bands of queries, each with the keys that its window can reach, all at once or on a CPU a few at a time
(`sliding_window_cpu`).

Keys may begin before the queries: `k` holds the cached tokens, followed by those of `q`.  `position` [B, T] is the
number of tokens of its document before each query.  The key i - j before query i is at position_i - (i - j); if that is
negative, the key belongs to another document or is an empty cache slot, and is masked.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.ops.attention.sliding_window_cpu import sliding_window_attention
from hqlt_lab.ops.dispatch import ATTENTION_BACKENDS, OpSpec, select_backend, warn_if_slow
from hqlt_lab.ops.memory_schedule import Schedule
from hqlt_lab.ops.precision import is_forward_mode_ad

AttentionForm = Literal["causal", "dense", "blocks", "bands"]
MIN_BAND_WIDTH = 32  # queries in a band: narrower matrix products are inefficient


def attend(
    q: Tensor, k: Tensor, v: Tensor, schedule: Schedule, position: Tensor | None = None, backend: str = "auto"
) -> Tensor:
    """Attend on the selected backend.

    q [B, H, T, K]; k, v [B, H, P + T, K|V]; position [B or 1, T] (None: all keys belong to one document)
    -> [B, H, T, V].
    """
    spec = make_op_spec(schedule, q, k, v, position)
    match warn_if_slow("softmax", select_backend(ATTENTION_BACKENDS, backend, spec)).name:
        case "flash_attn":
            from hqlt_lab.ops.attention.flash import attend_by_flash

            return attend_by_flash(q, k, v, schedule, position)
        case "flex":
            from hqlt_lab.ops.attention.flex import attend_by_flex

            return attend_by_flex(q, k, v, schedule, position)
        case "sdpa":
            return attend_by_sdpa(q, k, v, schedule, position)
        case "dense":
            return attend_dense(q, k, v, schedule, position)
        case _:
            return attend_by_form(q, k, v, schedule, position)


def make_op_spec(schedule: Schedule, q: Tensor, k: Tensor, v: Tensor, position: Tensor | None) -> OpSpec:
    """Describe the operation for backend selection."""
    has_documents, has_past_keys = position is not None, k.shape[2] > q.shape[2]
    return OpSpec(
        q.device.type,
        v.dtype,
        k.shape[3],
        v.shape[3],
        is_masked=is_masked(schedule, q.shape[2], k.shape[2], has_documents),
        has_past_keys=has_past_keys,
        needs_grad=torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v)),
        limitation="forward-mode differentiation is used" if is_forward_mode_ad() else "",
    )


def is_masked(schedule: Schedule, queries: int, keys: int, has_documents: bool) -> bool:
    """Return whether the mask hides more than the future."""
    return select_form(schedule, queries, keys, has_documents) not in ("causal", "blocks")


def attend_by_sdpa(q: Tensor, k: Tensor, v: Tensor, schedule: Schedule, position: Tensor | None = None) -> Tensor:
    """Attend with torch's scaled_dot_product_attention, with a dense mask if the schedule needs one."""
    match select_form(schedule, q.shape[2], k.shape[2], position is not None):
        case "causal":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        case "blocks":
            return _attend_blocks(q, k, v, schedule)
        case _:
            return attend_dense(q, k, v, schedule, position)


def attend_by_form(q: Tensor, k: Tensor, v: Tensor, schedule: Schedule, position: Tensor | None = None) -> Tensor:
    """Attend in the cheapest form, as `select_form` returns it."""
    match select_form(schedule, q.shape[2], k.shape[2], position is not None):
        case "causal":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        case "dense":
            return attend_dense(q, k, v, schedule, position)
        case "blocks":
            return _attend_blocks(q, k, v, schedule)
        case "bands" if can_use_banded_op(q):
            assert schedule.attention_span is not None
            return sliding_window_attention(q, k, v, schedule, position, compute_band_width(schedule.attention_span))
        case "bands":
            return _attend_bands(q, k, v, schedule, position)


def select_form(schedule: Schedule, queries: int, keys: int, has_positions: bool = False) -> AttentionForm:
    """Select the cheapest form of attention.  It is also recorded with a run."""
    span, is_plain = schedule.attention_span, keys == queries and not has_positions
    if is_plain and (span is None or (schedule.block is None and span >= queries)):
        return "causal"
    if span is None:
        return "dense"
    if is_plain and schedule.block == span < keys:
        return "blocks"
    return "dense" if queries * keys <= count_band_scores(queries, span) else "bands"


def can_use_banded_op(q: Tensor) -> bool:
    """Return whether the operator that computes a few bands at a time supports these queries."""
    return q.device.type == "cpu" and q.dtype in (torch.float32, torch.float64) and not is_forward_mode_ad()


def compute_band_width(span: int) -> int:
    """Return the number of queries in a band: at least the span, so that a key is in at most two bands."""
    return max(span, MIN_BAND_WIDTH)


def count_band_scores(queries: int, span: int) -> int:
    """Return the number of scores computed in bands, including padding to whole bands."""
    return -(-queries // compute_band_width(span)) * compute_band_width(span) * (compute_band_width(span) + span - 1)


def attend_dense(q: Tensor, k: Tensor, v: Tensor, schedule: Schedule, position: Tensor | None = None) -> Tensor:
    """Attend with one mask over all queries and keys: the reference."""
    t = _query_positions(q, k, position)[:, :, None]
    offset = torch.arange(k.shape[2], device=q.device) - _query_indices(q, k)[:, None]  # [T, P + T], negative: past
    visible = schedule.softmax_mask_at(t, t + offset)  # [B or 1, T, P + T]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=visible[:, None])


def _attend_blocks(q: Tensor, k: Tensor, v: Tensor, schedule: Schedule) -> Tensor:
    """Fold the blocks, which are independent, into the batch."""
    length, block = q.shape[2], schedule.block
    assert block is not None
    q, k, v = (F.pad(x, (0, 0, 0, -length % block)).unflatten(2, (-1, block)).flatten(1, 2) for x in (q, k, v))
    output = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return output.unflatten(1, (-1, -(-length // block))).flatten(2, 3)[:, :, :length]


def _attend_bands(q: Tensor, k: Tensor, v: Tensor, schedule: Schedule, position: Tensor | None) -> Tensor:
    """Attend in bands of queries, each with the `band_width + span - 1` keys that end with its last query."""
    span = schedule.attention_span
    assert span is not None
    length, past_keys, band_width, overlap = q.shape[2], k.shape[2] - q.shape[2], compute_band_width(span), span - 1
    tail = -length % band_width
    t = F.pad(_query_positions(q, k, position), (0, tail)).unflatten(1, (-1, band_width))[..., None]
    q = F.pad(q, (0, 0, 0, tail)).unflatten(2, (-1, band_width))  # [B, H, N, band_width, K]
    keys_per_band = band_width + overlap
    k, v = (  # [B, H, N, K|V, keys_per_band]
        F.pad(x, (0, 0, overlap - past_keys, tail)).unfold(2, keys_per_band, band_width) for x in (k, v)
    )
    column = torch.arange(-overlap, band_width, device=q.device)
    visible = schedule.softmax_mask_at(t, t + column - column[overlap:, None])  # [B or 1, N, band_width, keys_per_band]
    scores = (q * q.shape[-1] ** -0.5) @ k  # scaled before the product, which could overflow in float16
    scores = scores.masked_fill(~visible[:, None], -torch.inf)
    return (scores.softmax(-1).to(v.dtype) @ v.mT).flatten(2, 3)[:, :, :length]


def _query_positions(q: Tensor, k: Tensor, position: Tensor | None) -> Tensor:
    """Return the positions of the queries [B or 1, T]; without `position`, all keys belong to one document."""
    return _query_indices(q, k)[None] if position is None else position


def _query_indices(q: Tensor, k: Tensor) -> Tensor:
    """Return which of the keys belong to the queries [T]."""
    return torch.arange(k.shape[2] - q.shape[2], k.shape[2], device=q.device)
