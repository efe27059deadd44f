"""Softmax attention with torch's flex_attention: the schedule is a block mask, and empty blocks are not computed.

On a GPU it is compiled, once per shape.  On a CPU it computes all scores and has no backward, which is enough for
checks.  The mask is `Schedule.softmax_mask_at`, so caches and documents need no extra code.  Forget gates are added to
the scores: c_t - c_s is the sum of the differences of the leading and of the remaining digits of c.
"""

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from hqlt_lab.ops.gates import OptionalTensor
from hqlt_lab.ops.memory_schedule import Schedule

ScoreFunction = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]  # score, row, head, query, key -> score


def attend_by_flex(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    schedule: Schedule,
    position: OptionalTensor = None,
    decay: OptionalTensor = None,
    sink_keys: int = 0,
) -> Tensor:
    """Return softmax attention, computed by flex_attention.  The arguments are those of `attend`."""
    q, k = q.to(v.dtype), k.to(v.dtype)
    block_mask = get_block_mask(schedule, q.shape[2], k.shape[2], position, q.device, sink_keys)
    score_mod = None if decay is None else make_score_decay(decay, k.shape[2] - q.shape[2], v.dtype)
    if q.device.type == "cuda":
        # when the model is being compiled, flex_attention becomes part of its graph
        attend: Any = flex_attention if torch.compiler.is_compiling() else get_compiled_flex_attention()
        return attend(q, k, v, score_mod=score_mod, block_mask=block_mask)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        return flex_attention(q, k, v, score_mod=score_mod, block_mask=block_mask)


def make_score_decay(decay: Tensor, past_keys: int, dtype: torch.dtype) -> ScoreFunction:
    """Return the function that adds c_t - c_s to a score, for c [B, H, S] in float64."""
    # float32 holds the leading digits of c; their differences are exact, unlike that of two rounded numbers
    leading = decay.to(torch.promote_types(dtype, torch.float32))
    rest = (decay - leading).detach().to(leading.dtype)

    def add_decay(score: Tensor, row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        t = query + past_keys
        difference = leading[row, head, t] - leading[row, head, key]
        return score + (difference + (rest[row, head, t] - rest[row, head, key]))

    return add_decay


@cache
def get_compiled_flex_attention() -> Any:
    return torch.compile(flex_attention, dynamic=False)


@torch.compiler.disable
def get_block_mask(
    schedule: Schedule, queries: int, keys: int, position: OptionalTensor, device: torch.device, sink_keys: int = 0
) -> BlockMask:
    """Return a cached mask: one per schedule and shape, or with documents one for all layers that share `position`."""
    if position is None:
        return default_block_mask(schedule, queries, keys, device)
    cache_key = (id(position), schedule, keys, sink_keys)
    if cache_key not in _document_masks:
        for stale_key in [key for key in _document_masks if key[0] != id(position)]:
            del _document_masks[stale_key]  # a mask keeps its positions alive, so only the latest batch is cached
        _document_masks[cache_key] = make_block_mask(schedule, queries, keys, position, device, sink_keys)
    return _document_masks[cache_key]


_document_masks: dict[tuple[int, Schedule, int, int], BlockMask] = {}


@cache
def default_block_mask(schedule: Schedule, queries: int, keys: int, device: torch.device) -> BlockMask:
    return make_block_mask(schedule, queries, keys, torch.arange(keys - queries, keys, device=device)[None], device)


def make_block_mask(
    schedule: Schedule, queries: int, keys: int, position: Tensor, device: torch.device, sink_keys: int = 0
) -> BlockMask:
    past_keys, is_shared = keys - queries - sink_keys, len(position) == 1

    def mask_function(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        t = position[0 if is_shared else row, query]
        first = t - query - past_keys  # position of the first key behind the sink slots
        visible = schedule.softmax_mask_at(t, first + key - sink_keys)
        if not sink_keys:
            return visible
        return torch.where(key < sink_keys, key < first, visible)

    rows = None if is_shared else len(position)
    return create_block_mask(mask_function, rows, None, queries, keys, device=device)
