"""What flash-attn 2.8 documents of its two functions, in plain torch: it is built for GPUs only.

A query at place i of n sees the keys from i + m - n - left to i + m - n + right of m, -1 meaning no limit, and with
`causal` none after itself.  Layouts are [B, T, H, D], or [all tokens, H, D] with the borders of the sequences.
"""

import types
from itertools import pairwise

import torch


def flash_attn_func(
    q,
    k,
    v,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
):
    assert all(x.stride(-1) == 1 and x.dim() == 4 for x in (q, k, v)) and q.dtype == k.dtype == v.dtype
    calls.append({"deterministic": deterministic, "sequences": len(q)})
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    left, right = window_size
    away = torch.arange(k.shape[2]) - torch.arange(q.shape[2])[:, None] - (k.shape[2] - q.shape[2])
    sees = torch.ones_like(away, dtype=torch.bool)
    sees &= away >= -left if left >= 0 else sees
    sees &= away <= right if right >= 0 else sees
    sees &= away <= 0 if causal else sees
    scores = (q @ k.mT) * (q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale)
    return (scores.masked_fill(~sees, -torch.inf).softmax(-1) @ v).transpose(1, 2)


def flash_attn_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
    block_table=None,
):
    assert cu_seqlens_q.dtype == cu_seqlens_k.dtype == torch.int32
    assert all(x.stride(-1) == 1 and x.dim() == 3 for x in (q, k, v))
    borders = cu_seqlens_q.tolist()
    assert borders[0] == 0 and borders[-1] == len(q) and borders == cu_seqlens_k.tolist()
    lengths = [b - a for a, b in pairwise(borders)]
    assert max(lengths) <= max_seqlen_q == max_seqlen_k and min(lengths) > 0
    rows = [x.split(lengths) for x in (q, k, v)]
    options = {"causal": causal, "window_size": window_size, "deterministic": deterministic}
    return torch.cat([flash_attn_func(*(x[None] for x in row), **options)[0] for row in zip(*rows, strict=True)])


calls: list[dict] = []


def module() -> types.ModuleType:
    made = types.ModuleType("flash_attn")
    made.flash_attn_func, made.flash_attn_varlen_func = flash_attn_func, flash_attn_varlen_func
    return made
