"""Softmax attention with torch's flex_attention: the schedule is a block mask, and empty blocks are not computed.

On a GPU it is compiled, once per shape.  On a CPU it computes all scores and has no backward, which is enough for
checks.  The mask is `Schedule.softmax_mask_at`, so caches and documents need no extra code.
"""

import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from hqlt_lab.ops.memory_schedule import Schedule


def attend_by_flex(q: Tensor, k: Tensor, v: Tensor, schedule: Schedule, position: Tensor | None = None) -> Tensor:
    """Attend.  q [B, H, T, K]; k, v [B, H, P + T, K|V]; position [B or 1, T] -> [B, H, T, V]."""
    q, k = q.to(v.dtype), k.to(v.dtype)
    block_mask = get_block_mask(schedule, q.shape[2], k.shape[2], position, q.device)
    if q.device.type == "cuda":
        # when the model is being compiled, flex_attention becomes part of its graph
        attend: Any = flex_attention if torch.compiler.is_compiling() else get_compiled_flex_attention()
        return attend(q, k, v, block_mask=block_mask)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        return flex_attention(q, k, v, block_mask=block_mask)


@cache
def get_compiled_flex_attention() -> Any:
    return torch.compile(flex_attention, dynamic=False)


@torch.compiler.disable
def get_block_mask(
    schedule: Schedule, queries: int, keys: int, position: Tensor | None, device: torch.device
) -> BlockMask:
    """Return a cached mask: one per schedule and shape, or with documents one for all layers that share `position`."""
    if position is None:
        return default_block_mask(schedule, queries, keys, device)
    cache_key = (id(position), schedule, keys)
    if cache_key not in _document_masks:
        for stale_key in [key for key in _document_masks if key[0] != id(position)]:
            del _document_masks[stale_key]  # a mask keeps its positions alive, so only the latest batch is cached
        _document_masks[cache_key] = make_block_mask(schedule, queries, keys, position, device)
    return _document_masks[cache_key]


_document_masks: dict[tuple[int, Schedule, int], BlockMask] = {}


@cache
def default_block_mask(schedule: Schedule, queries: int, keys: int, device: torch.device) -> BlockMask:
    return make_block_mask(schedule, queries, keys, torch.arange(keys - queries, keys, device=device)[None], device)


def make_block_mask(schedule: Schedule, queries: int, keys: int, position: Tensor, device: torch.device) -> BlockMask:
    past_keys, is_shared = keys - queries, len(position) == 1

    def mask_function(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        t = position[0 if is_shared else row, query]
        return schedule.softmax_mask_at(t, t + key - query - past_keys)

    rows = None if is_shared else len(position)
    return create_block_mask(mask_function, rows, None, queries, keys, device=device)
