"""Softmax memory of a layer: what is read at each token, and what is carried to the next call.

Keys and values of the last tokens are in the KV cache, which both memories share.  Beside it, softmax carries

    features    what the attention component needs of each cached token, for as long as the token is cached
    decay       for a component with forget gates, the sum c of the log gates of the document up to each cached token
    sinks       the first tokens of the document with all of these, if the schedule has sinks and a window

Within a call, c continues over the documents of a row, so that it changes little between neighbors; the sums that are
carried to the next call begin at the document's first token.
"""

import torch
from torch import Tensor

from hqlt_lab.components.attention._base import Attention, AttentionInputs
from hqlt_lab.components.positions._base import Positions
from hqlt_lab.model.batch_layout import TokenPositions
from hqlt_lab.model.state import AttentionState, SoftmaxTokens, gather_tokens, keep_last_tokens, repeat_groups
from hqlt_lab.ops.attention.scheduled_softmax import attend
from hqlt_lab.ops.gates import OptionalTensor
from hqlt_lab.ops.memory_schedule import Schedule
from hqlt_lab.ops.scan.deterministic_cumsum import deterministic_cumsum


def read_softmax(
    attention: Attention,
    positions: Positions,
    schedule: Schedule,
    backend: str,
    x: Tensor,
    q: Tensor,
    tokens: SoftmaxTokens,
    position: OptionalTensor,
    sinks: SoftmaxTokens | None,
) -> Tensor:
    """Return the output of softmax [B, H, T, V] for q, the queries of x; `tokens` are all tokens in reach.

    position [B or 1, T]: see `attend`.
    """
    t = torch.arange(q.shape[2], device=q.device)[None] if position is None else position
    inputs = make_inputs(attention, positions, schedule, x, q, tokens, t, sinks)
    decay = tokens.decay
    if decay is not None and sinks is not None and sinks.decay is not None:
        decay = torch.cat([sinks.decay, decay], 2)
    sink_keys = 0 if sinks is None else sinks.k.shape[2]
    output = attend(inputs.q, inputs.k, inputs.v, schedule, position, backend, decay=decay, sink_keys=sink_keys)
    return attention.finish(x, output)


def make_inputs(
    attention: Attention,
    positions: Positions,
    schedule: Schedule,
    x: Tensor,
    q: Tensor,
    tokens: SoftmaxTokens,
    t: Tensor,
    sinks: SoftmaxTokens | None,
) -> AttentionInputs:
    """Return the inputs of softmax, with positions applied; t [B or 1, T] are the positions of the queries."""
    cache_offset = torch.arange(q.shape[2] - tokens.k.shape[2], 0, device=q.device)
    s = torch.cat([t[:, :1] + cache_offset, t], 1)  # positions of the cached tokens, then those of this call
    if sinks is not None:
        slots = torch.arange(sinks.k.shape[2], device=q.device).expand(len(s), -1)
        tokens, s = sinks.append_tokens(tokens), torch.cat([slots, s], 1)
    k, v = repeat_groups(tokens.k, q.shape[1]), repeat_groups(tokens.v, q.shape[1])
    inputs = AttentionInputs(q, k, v, tokens.features, schedule.count_visible(t))
    inputs = attention.transform(x, inputs)
    return inputs._replace(q=positions.rotate(inputs.q, t), k=positions.rotate(inputs.k, s))


def make_tokens(attention: Attention, x: Tensor, k: Tensor, v: Tensor, state: AttentionState | None) -> SoftmaxTokens:
    """Return the cached tokens followed by those of x, whose keys and values are k and v [B, G, S, K|V]."""
    features, log_forget = attention.key_features(x), attention.log_forget(x)
    past_features, past_decay = (None, None) if state is None else (state.features, state.decay)
    if features is not None and past_features is not None:
        features = torch.cat([past_features, features], 2)
    decay = None
    if log_forget is not None:
        decay = deterministic_cumsum(log_forget.double(), 2)
        if past_decay is not None:
            decay = torch.cat([past_decay, past_decay[:, :, -1:] + decay], 2)
    return SoftmaxTokens(k, v, features, decay)


def next_attention_state(
    tokens: SoftmaxTokens,
    state: AttentionState | None,
    capacity: int | None,
    sinks: int,
    token_positions: TokenPositions,
) -> AttentionState | None:
    """Return what to carry to the next call for the last `capacity` tokens (None: all) and the first `sinks`."""
    if tokens.features is None and tokens.decay is None and not sinks:
        return None
    tokens = tokens._replace(decay=restart_decay(tokens.decay, token_positions))

    def keep_last(u: OptionalTensor) -> OptionalTensor:
        return u if u is None or capacity is None else keep_last_tokens(u, capacity, token_positions)

    past_sinks = None if state is None else state.sinks
    new_sinks = next_sinks(tokens, past_sinks, sinks, token_positions) if sinks else None
    return AttentionState(keep_last(tokens.features), keep_last(tokens.decay), new_sinks)


def restart_decay(decay: OptionalTensor, token_positions: TokenPositions) -> OptionalTensor:
    """Return sums of log gates that begin at each document that begins in this call."""
    if decay is None or not token_positions.is_packed:
        return decay
    length = token_positions.position.shape[1]
    cached, current = decay[:, :, :-length], decay[:, :, -length:]
    before = torch.cat([cached[:, :, -1:] if cached.shape[2] else current[:, :, :1] * 0, current[:, :, :-1]], 2)
    first = torch.arange(length, device=decay.device) - token_positions.position  # negative: before this call
    first = first.expand(len(decay), -1)[:, None]
    offset = before.gather(2, first.clamp(min=0).expand_as(before)).where(first >= 0, 0.0)
    return torch.cat([cached, current - offset], 2)


def next_sinks(
    tokens: SoftmaxTokens, past: SoftmaxTokens | None, sinks: int, token_positions: TokenPositions
) -> SoftmaxTokens:
    """Return the first `sinks` tokens of each row's document, zeros where it has fewer."""
    length = token_positions.position.shape[1]
    row_length = length if token_positions.row_length is None else token_positions.row_length[:, None]
    slot = torch.arange(sinks, device=tokens.k.device)
    document_length = token_positions.document_length[:, None]
    index = row_length - document_length + slot  # [B, sinks] among the tokens of this call; negative: before it
    is_missing, is_past = slot >= document_length, index < 0

    def take(u: OptionalTensor, past_u: OptionalTensor) -> OptionalTensor:
        if u is None:
            return None
        shape = (len(u), 1, sinks, *[1] * (u.dim() - 3))
        sink_values = gather_tokens(u[:, :, -length:], index.clamp(0, length - 1))
        if past_u is not None:
            sink_values = past_u.where(is_past.view(shape), sink_values)
        return sink_values.masked_fill(is_missing.view(shape), 0.0)

    past_fields = past or (None, None, None, None)
    k, v, features, decay = (take(u, past_u) for u, past_u in zip(tokens, past_fields, strict=True))
    assert k is not None and v is not None
    return SoftmaxTokens(k, v, features, decay)
