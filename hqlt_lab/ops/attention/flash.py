"""Softmax attention with the kernels of flash-attn: causal, over a window, in blocks, over packed documents.

    one document per row, window    flash_attn_func             window_size counts the tokens before the query
    blocks                          flash_attn_func             each block is a row of the batch
    documents, with or without      flash_attn_varlen_func      each block of each document is a sequence
    blocks

A block limits what softmax sees just as a document does, so both become boundaries of sequences.  flash_attn is
imported inside the functions: it takes seconds to load, and may be broken on machines that do not use it.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.ops.memory_schedule import Schedule
from hqlt_lab.ops.scan.external_kernel_inputs import make_varlen_sequences


def attend_by_flash(q: Tensor, k: Tensor, v: Tensor, schedule: Schedule, position: Tensor | None = None) -> Tensor:
    """Attend without past keys.  q, k [B, H, T, K], v [B, H, T, V], position [B or 1, T] -> [B, H, T, V]."""
    q, k = q.to(v.dtype), k.to(v.dtype)
    qkv = [x.transpose(1, 2) for x in (q, k, v)]  # [B, T, H, ..]
    options: dict[str, Any] = {
        "causal": True,
        "window_size": (-1, 0) if schedule.window is None else (schedule.window - 1, 0),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }
    output = (
        attend_rows(qkv, schedule.block, options)
        if position is None
        else attend_packed(qkv, schedule.block, position, options)
    )
    return output.transpose(1, 2)


def attend_rows(qkv: list[Tensor], block: int | None, options: dict[str, Any]) -> Tensor:
    """Attend in rows that hold one document each.  q, k, v [B, T, H, ..] -> [B, T, H, V]."""
    from flash_attn import flash_attn_func

    batch, length = qkv[0].shape[:2]
    if block is None or block >= length:
        return flash_attn_func(*qkv, **options)
    folded = [F.pad(x, (0, 0, 0, 0, 0, -length % block)).unflatten(1, (-1, block)).flatten(0, 1) for x in qkv]
    return flash_attn_func(*folded, **options).unflatten(0, (batch, -1)).flatten(1, 2)[:, :length]


def attend_packed(qkv: list[Tensor], block: int | None, position: Tensor, options: dict[str, Any]) -> Tensor:
    """Attend in rows of several documents, in each of which `position` counts from 0.  -> [B, T, H, V]."""
    from flash_attn import flash_attn_varlen_func

    position = position.expand(len(qkv[0]), -1)
    sequence_start = position == 0 if block is None else position % block == 0
    cu_seqlens = make_varlen_sequences(sequence_start).cu_seqlens.int()
    max_seqlen = int(cu_seqlens.diff().max())
    flat = [x.flatten(0, 1) for x in qkv]
    output = flash_attn_varlen_func(*flat, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, **options)
    return output.unflatten(0, qkv[0].shape[:2])
