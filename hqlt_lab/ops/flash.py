"""Softmax attention by the kernels of flash-attn: causal, over a window, in blocks, over packed documents.

    one text per row, a window     flash_attn_func             window_size counts the tokens before the query
    blocks                         the same, every block a row of the batch
    documents, or both             flash_attn_varlen_func      every block of every document a sequence

A block ends what softmax sees just as a document does, so that both are borders of sequences.  Imported where it is
used: it takes seconds to load, and may be broken where nobody asked for it.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.ops.schedule import Schedule
from hqlt_lab.ops.spread import sequences


def attend_by_flash(q: Tensor, k: Tensor, v: Tensor, schedule: Schedule, place: Tensor | None = None) -> Tensor:
    """q, k [B, H, T, K], v [B, H, T, V] without a past; place [B or 1, T] -> [B, H, T, V]."""
    q, k = q.to(v.dtype), k.to(v.dtype)
    x = [u.transpose(1, 2) for u in (q, k, v)]  # [B, T, H, ..]
    options: dict[str, Any] = {
        "causal": True,
        "window_size": (-1, 0) if schedule.window is None else (schedule.window - 1, 0),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }
    answer = rows(x, schedule.block, options) if place is None else packed(x, schedule.block, place, options)
    return answer.transpose(1, 2)


def rows(x: list[Tensor], block: int | None, options: dict[str, Any]) -> Tensor:
    """[B, T, H, V], every row one text."""
    from flash_attn import flash_attn_func

    batch, length = x[0].shape[:2]
    if block is None or block >= length:
        return flash_attn_func(*x, **options)
    folded = [F.pad(u, (0, 0, 0, 0, 0, -length % block)).unflatten(1, (-1, block)).flatten(0, 1) for u in x]
    return flash_attn_func(*folded, **options).unflatten(0, (batch, -1)).flatten(1, 2)[:, :length]


def packed(x: list[Tensor], block: int | None, place: Tensor, options: dict[str, Any]) -> Tensor:
    """[B, T, H, V], rows of several documents; `place` counts each document's tokens from 0."""
    from flash_attn import flash_attn_varlen_func

    place = place.expand(len(x[0]), -1)
    borders = sequences(place == 0 if block is None else place % block == 0).borders.int()
    longest = int(borders.diff().max())
    flat = [u.flatten(0, 1) for u in x]
    answer = flash_attn_varlen_func(*flat, borders, borders, longest, longest, **options)
    return answer.unflatten(0, x[0].shape[:2])
