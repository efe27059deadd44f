"""Softmax attention by torch's flex_attention: the schedule as a mask of blocks, and empty ones are never computed.

On a GPU it is compiled, once for every shape.  On a CPU it computes all scores and has no backward: enough to check.
The mask is that of `Schedule.softmax_sees_at`, so that caches and documents need nothing of their own.
"""

import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from hqlt_lab.ops.schedule import Schedule


def attend_by_flex(q: Tensor, k: Tensor, v: Tensor, schedule: Schedule, place: Tensor | None = None) -> Tensor:
    """q [B, H, T, K]; k, v [B, H, P + T, K|V]; place [B or 1, T] -> [B, H, T, V]."""
    q, k = q.to(v.dtype), k.to(v.dtype)
    seen = mask(schedule, q.shape[2], k.shape[2], place, q.device)
    if q.device.type == "cuda":  # a model that is compiled takes it in
        attend: Any = flex_attention if torch.compiler.is_compiling() else compiled()
        return attend(q, k, v, block_mask=seen)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        return flex_attention(q, k, v, block_mask=seen)


@cache
def compiled() -> Any:
    return torch.compile(flex_attention, dynamic=False)


@torch.compiler.disable
def mask(schedule: Schedule, queries: int, keys: int, place: Tensor | None, device: torch.device) -> BlockMask:
    """Made once for a schedule and a shape, and with documents once for all layers that read them."""
    if place is None:
        return plain_mask(schedule, queries, keys, device)
    name = (id(place), schedule, keys)
    if name not in _latest:
        for other in [other for other in _latest if other[0] != id(place)]:
            del _latest[other]  # a mask holds its places, so only those of the latest batch are kept
        _latest[name] = made(schedule, queries, keys, place, device)
    return _latest[name]


_latest: dict[tuple[int, Schedule, int], BlockMask] = {}


@cache
def plain_mask(schedule: Schedule, queries: int, keys: int, device: torch.device) -> BlockMask:
    return made(schedule, queries, keys, torch.arange(keys - queries, keys, device=device)[None], device)


def made(schedule: Schedule, queries: int, keys: int, place: Tensor, device: torch.device) -> BlockMask:
    past, one = keys - queries, len(place) == 1

    def sees(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        t = place[0 if one else row, query]
        return schedule.softmax_sees_at(t, t + key - query - past)

    rows = None if one else len(place)
    return create_block_mask(sees, rows, None, queries, keys, device=device)
