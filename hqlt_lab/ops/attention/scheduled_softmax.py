"""Softmax attention under a schedule, at a cost of O(T * window) instead of O(T^2).

    kv_t = sum_s softmax_s(q_t . k_s / sqrt(K) + c_t - c_s) v_s        over the s that the schedule shows to t

c is a sum of log forget gates, or 0 without them.  `attend_dense` is the reference, with one mask over all pairs.
`attend` runs on the backend that `ops.dispatch` picks.  Our own backend, `blocks`, uses the cheapest equivalent form:
blocks are folded into the batch; a window is cut into bands of queries, each with the keys that its window can reach,
all at once or on a CPU a few at a time (`sliding_window_cpu`).

Keys may begin before the queries: `k` holds the cached tokens, followed by those of `q`.  `position` [B, T] is the
number of tokens of its document before each query.  The key i - j before query i is at position_i - (i - j); if that is
negative, the key belongs to another document or is an empty cache slot, and is masked.

**Sinks.**  With `Schedule.sinks` the first tokens of a document stay visible after they have left the cache.  They are
then in `sink_keys` slots in front of the other keys: slot p holds the token at position p of the document that the row
continues.  A slot is used only for a token that is not among the other keys.
"""

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.ops.attention.forget_gate_channels import add_band_channels, add_causal_channels
from hqlt_lab.ops.attention.sliding_window_cpu import sliding_window_attention
from hqlt_lab.ops.dispatch import ATTENTION_BACKENDS, OpSpec, select_backend, warn_if_slow
from hqlt_lab.ops.gates import OptionalTensor
from hqlt_lab.ops.memory_schedule import Schedule
from hqlt_lab.ops.precision import at_least_float32, disable_autocast, is_forward_mode_ad

AttentionForm = Literal["causal", "dense", "blocks", "bands"]
MIN_BAND_WIDTH = 32  # queries in a band: narrower matrix products are inefficient


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    schedule: Schedule,
    position: OptionalTensor = None,
    backend: str = "auto",
    *,
    decay: OptionalTensor = None,
    sink_keys: int = 0,
) -> Tensor:
    """Attend on the selected backend.

    q [B, H, T, K]; k, v [B, H, S, K|V] of `sink_keys` slots, cached tokens and those of q; position [B or 1, T] (None:
    all keys belong to one document); decay [B, H, S], float64: sums of log forget gates -> [B, H, T, V].
    """
    spec = make_op_spec(schedule, q, k, v, position, decay, sink_keys)
    name = warn_if_slow("softmax", select_backend(ATTENTION_BACKENDS, backend, spec)).name
    if decay is None or name == "flex":
        return attend_on_backend(name, q, k, v, schedule, position, decay, sink_keys)
    with disable_autocast(q):  # the decay needs at least float32
        dtype = v.dtype
        q, k, v = (at_least_float32(x) for x in (q, k, v))
        return attend_on_backend(name, q, k, v, schedule, position, decay, sink_keys).to(dtype)


def attend_on_backend(
    name: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    schedule: Schedule,
    position: OptionalTensor,
    decay: OptionalTensor,
    sink_keys: int,
) -> Tensor:
    """Attend on the backend of this name."""
    match name:
        case "flash_attn":
            from hqlt_lab.ops.attention.flash import attend_by_flash

            return attend_by_flash(q, k, v, schedule, position)
        case "flex":
            from hqlt_lab.ops.attention.flex import attend_by_flex

            return attend_by_flex(q, k, v, schedule, position, decay, sink_keys)
        case "sdpa":
            return attend_by_sdpa(q, k, v, schedule, position, decay, sink_keys)
        case "dense":
            return attend_dense(q, k, v, schedule, position, decay, sink_keys)
        case _:
            return attend_by_form(q, k, v, schedule, position, decay, sink_keys)


def make_op_spec(
    schedule: Schedule,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    position: OptionalTensor,
    decay: OptionalTensor = None,
    sink_keys: int = 0,
) -> OpSpec:
    """Describe the operation for backend selection."""
    return OpSpec(
        q.device.type,
        v.dtype,
        k.shape[3],
        v.shape[3],
        is_masked=is_masked(schedule, q.shape[2], k.shape[2], position is not None),
        has_past_keys=k.shape[2] > q.shape[2],
        needs_grad=torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v)),
        has_decay=decay is not None,
        has_sinks=needs_sinks(schedule, q.shape[2], k.shape[2]),
        limitation="forward-mode differentiation is used" if is_forward_mode_ad() else "",
    )


def needs_sinks(schedule: Schedule, queries: int, keys: int) -> bool:
    """Return whether sinks may be visible that are not within the window and block of a query."""
    return schedule.limited_sinks > 0 and (keys > queries or (schedule.attention_span or 0) < queries)


def is_masked(schedule: Schedule, queries: int, keys: int, has_documents: bool) -> bool:
    """Return whether the mask hides more than the future."""
    return select_form(schedule, queries, keys, has_documents) not in ("causal", "blocks")


def attend_by_sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    schedule: Schedule,
    position: OptionalTensor = None,
    decay: OptionalTensor = None,
    sink_keys: int = 0,
) -> Tensor:
    """Attend with torch's scaled_dot_product_attention, with a dense mask if the schedule needs one."""
    match select_form(schedule, q.shape[2], k.shape[2], position is not None):
        case "causal":
            return attend_causal(q, k, v, decay)
        case "blocks":
            return _attend_blocks(q, k, v, schedule, decay)
        case _:
            return attend_dense(q, k, v, schedule, position, decay, sink_keys)


def attend_by_form(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    schedule: Schedule,
    position: OptionalTensor = None,
    decay: OptionalTensor = None,
    sink_keys: int = 0,
) -> Tensor:
    """Attend in the cheapest form, as `select_form` returns it."""
    form = select_form(schedule, q.shape[2], k.shape[2], position is not None)
    if form == "causal":
        return attend_causal(q, k, v, decay)
    if form == "dense":
        return attend_dense(q, k, v, schedule, position, decay, sink_keys)
    if form == "blocks":
        return _attend_blocks(q, k, v, schedule, decay)
    if schedule.limited_sinks or not can_use_banded_op(q):
        return _attend_bands(q, k, v, schedule, position, decay, sink_keys)
    assert schedule.attention_span is not None
    band_width = compute_band_width(schedule.attention_span)
    if decay is not None:
        q, k = add_band_channels(q, k, decay, band_width)
    return sliding_window_attention(q, k, v, schedule, position, band_width)


def select_form(schedule: Schedule, queries: int, keys: int, has_positions: bool = False) -> AttentionForm:
    """Select the cheapest form of attention.  It is also recorded with a run."""
    span, is_plain = schedule.attention_span, keys == queries and not has_positions
    if is_plain and (span is None or (schedule.block is None and span >= queries)):
        return "causal"
    if span is None:
        return "dense"
    if is_plain and schedule.block == span < keys and not schedule.limited_sinks:
        return "blocks"
    band_scores = count_band_scores(queries, span) + count_sink_scores(schedule, queries, keys)
    return "dense" if queries * keys <= band_scores else "bands"


def can_use_banded_op(q: Tensor) -> bool:
    """Return whether the operator that computes a few bands at a time supports these queries."""
    return q.device.type == "cpu" and q.dtype in (torch.float32, torch.float64) and not is_forward_mode_ad()


def compute_band_width(span: int) -> int:
    """Return the number of queries in a band: at least the span, so that a key is in at most two bands."""
    return max(span, MIN_BAND_WIDTH)


def count_band_scores(queries: int, span: int) -> int:
    """Return the number of scores computed in bands, including padding to whole bands."""
    return -(-queries // compute_band_width(span)) * compute_band_width(span) * (compute_band_width(span) + span - 1)


def count_sink_scores(schedule: Schedule, queries: int, keys: int) -> int:
    """Return the number of scores of the bands' queries with the sinks of a row with one document."""
    if schedule.attention_span is None:
        return 0
    band_width = compute_band_width(schedule.attention_span)
    return -(-queries // band_width) * band_width * min(schedule.limited_sinks, keys)


def attend_causal(q: Tensor, k: Tensor, v: Tensor, decay: OptionalTensor = None) -> Tensor:
    """Attend to all tokens up to the query's own, in rows of one document without cached tokens."""
    if decay is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    value_dim = v.shape[3]
    q, k = add_causal_channels(q, k, decay)
    v = F.pad(v, (0, max(q.shape[3] - value_dim, 0)))  # the fused kernels need keys and values of one size
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)[..., :value_dim]


def attend_dense(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    schedule: Schedule,
    position: OptionalTensor = None,
    decay: OptionalTensor = None,
    sink_keys: int = 0,
) -> Tensor:
    """Attend with one mask over all queries and keys: the reference."""
    t = _query_positions(q, k, position)[:, :, None]
    query_index = _query_indices(q, k)[:, None] - sink_keys
    offset = torch.arange(k.shape[2] - sink_keys, device=q.device) - query_index  # [T, P + T], negative: past
    mask = schedule.softmax_mask_at(t, t + offset)  # [B or 1, T, P + T]
    if sink_keys:
        # a slot is visible if its token comes before the first of the other keys, which is at position t - query_index
        mask = torch.cat([torch.arange(sink_keys, device=q.device) < t - query_index, mask], -1)
    mask = mask[:, None]
    if decay is not None:
        score_decay = decay[:, :, -q.shape[2] :, None] - decay[:, :, None]  # [B, H, T, S]
        mask = score_decay.to(q.dtype).masked_fill(~mask, -torch.inf)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def _attend_blocks(q: Tensor, k: Tensor, v: Tensor, schedule: Schedule, decay: OptionalTensor = None) -> Tensor:
    """Fold the blocks, which are independent, into the batch."""
    length, block = q.shape[2], schedule.block
    assert block is not None
    q, k, v = (F.pad(x, (0, 0, 0, -length % block)).unflatten(2, (-1, block)).flatten(1, 2) for x in (q, k, v))
    if decay is not None:
        decay = F.pad(decay, (0, -length % block)).unflatten(2, (-1, block)).flatten(1, 2)
    output = attend_causal(q, k, v, decay)
    return output.unflatten(1, (-1, -(-length // block))).flatten(2, 3)[:, :, :length]


def _attend_bands(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    schedule: Schedule,
    position: OptionalTensor,
    decay: OptionalTensor = None,
    sink_keys: int = 0,
) -> Tensor:
    """Attend in bands of queries, each with the `band_width + span - 1` keys that end with its last query."""
    span = schedule.attention_span
    assert span is not None
    t = _query_positions(q, k, position)
    sinks = None
    if schedule.limited_sinks:
        max_sinks = schedule.sinks if position is None else None  # a row of one document
        sinks = gather_sinks(schedule, k, v, decay, t, sink_keys, max_sinks)
    k, v = k[:, :, sink_keys:], v[:, :, sink_keys:]
    length, past_keys, band_width, overlap = q.shape[2], k.shape[2] - q.shape[2], compute_band_width(span), span - 1
    tail = -length % band_width
    t = F.pad(t, (0, tail)).unflatten(1, (-1, band_width))[..., None]
    q = F.pad(q, (0, 0, 0, tail)).unflatten(2, (-1, band_width))  # [B, H, N, band_width, K]
    keys_per_band = band_width + overlap
    k, v = (  # [B, H, N, K|V, keys_per_band]
        F.pad(x, (0, 0, overlap - past_keys, tail)).unfold(2, keys_per_band, band_width) for x in (k, v)
    )
    column = torch.arange(-overlap, band_width, device=q.device)
    # [B or 1, N, band_width, keys_per_band]
    visible = schedule.window_mask_at(t, t + column - column[overlap:, None])
    q = q * q.shape[-1] ** -0.5  # scaled before the product, which could overflow in float16
    scores, query_decay = q @ k, None
    if decay is not None:
        decay = decay[:, :, sink_keys:]
        query_decay = F.pad(decay[:, :, past_keys:], (0, tail)).unflatten(2, (-1, band_width))[..., None]
        key_decay = F.pad(decay, (overlap - past_keys, tail)).unfold(2, keys_per_band, band_width)
        scores = scores + (query_decay - key_decay[..., None, :]).to(scores.dtype)
    scores = scores.masked_fill(~visible[:, None], -torch.inf)
    if sinks is None:
        return (scores.softmax(-1).to(v.dtype) @ v.mT).flatten(2, 3)[:, :, :length]
    query_index = torch.arange(past_keys, past_keys + length + tail, device=q.device).view(-1, band_width, 1)
    sink_scores = score_sinks(schedule, q, sinks, t, query_index, query_decay)
    weights = torch.cat([sink_scores, scores], -1).softmax(-1).to(v.dtype)
    sink_weights, weights = weights.tensor_split([sink_scores.shape[-1]], -1)
    output = (weights @ v.mT).flatten(2, 3) + sink_weights.flatten(2, 3) @ sinks.v
    return output[:, :, :length]


class Sinks(NamedTuple):
    """The sinks of all documents of a row, for attention in bands."""

    k: Tensor  # [B, H, M, K]
    v: Tensor  # [B, H, M, V]
    decay: OptionalTensor  # [B, H, M]
    key_index: Tensor  # [B or 1, M] among the keys, negative before the first cached token
    position: Tensor  # [B or 1, M] in its document; -1: there is no such sink


def gather_sinks(
    schedule: Schedule,
    k: Tensor,
    v: Tensor,
    decay: OptionalTensor,
    t: Tensor,
    sink_keys: int,
    max_sinks: int | None,
) -> Sinks:
    """Gather the sinks of a row from the slots and from the other keys, for queries at positions t [B or 1, T].

    `max_sinks` is their number; None: it is counted, for which a GPU has to be synchronized.
    """
    first = t[:, :1] - (k.shape[2] - sink_keys - t.shape[1])  # [B or 1, 1] position of the first key behind the slots
    index = torch.arange(-sink_keys, k.shape[2] - sink_keys, device=k.device).expand(len(t), -1)
    position = torch.cat([first + index[:, sink_keys : k.shape[2] - t.shape[1]], t], 1)
    if sink_keys:
        slot = torch.arange(sink_keys, device=k.device)
        position = torch.cat([slot.where(slot < first, -1), position], 1)  # [B or 1, S]
        index = torch.cat([slot - first, index[:, sink_keys:]], 1)
    is_sink = (position >= 0) & (position < schedule.sinks)
    count = int(is_sink.sum(1).max()) if max_sinks is None else max_sinks
    columns = (~is_sink).int().argsort(dim=1, stable=True)[:, :count]  # [B or 1, M]

    def gather(u: Tensor) -> Tensor:
        rows = columns.expand(len(u), -1)[:, None].expand(-1, u.shape[1], -1)
        return u.gather(2, rows if u.dim() == 3 else rows[..., None].expand(-1, -1, -1, u.shape[3]))

    position = position.where(is_sink, -1).gather(1, columns)
    return Sinks(gather(k), gather(v), None if decay is None else gather(decay), index.gather(1, columns), position)


def score_sinks(
    schedule: Schedule, q: Tensor, sinks: Sinks, t: Tensor, query_index: Tensor, query_decay: OptionalTensor
) -> Tensor:
    """Return the scores of scaled queries [B, H, N, band_width, K] with the sinks outside of their windows.

    -> [B, H, N, band_width, M], -inf for sinks that are in the window or belong to another document.
    """
    index, position = (x[:, None, None] for x in (sinks.key_index, sinks.position))  # [B or 1, 1, 1, M]
    visible = (position >= 0) & (position <= t) & (query_index - index == t - position)
    visible = visible & ~schedule.window_mask_at(t, position)
    scores = (q.flatten(2, 3) @ sinks.k.mT).unflatten(2, q.shape[2:4])
    if query_decay is not None and sinks.decay is not None:
        scores = scores + (query_decay - sinks.decay[:, :, None, None]).to(scores.dtype)
    return scores.masked_fill(~visible[:, None], -torch.inf)


def _query_positions(q: Tensor, k: Tensor, position: OptionalTensor) -> Tensor:
    """Return the positions of the queries [B or 1, T]; without `position`, all keys belong to one document."""
    return _query_indices(q, k)[None] if position is None else position


def _query_indices(q: Tensor, k: Tensor) -> Tensor:
    """Return which of the keys belong to the queries [T]."""
    return torch.arange(k.shape[2] - q.shape[2], k.shape[2], device=q.device)
