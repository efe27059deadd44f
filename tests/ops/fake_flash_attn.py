"""Plain torch implementation of the two documented functions of flash-attn 2.8, which runs on GPUs only.

Query i of n sees the keys from i + m - n - left to i + m - n + right of m, where -1 means no limit, and with `causal`
none after itself.  Layouts are [B, T, H, D], or [all tokens, H, D] with the boundaries of the sequences.
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
    offset = torch.arange(k.shape[2]) - torch.arange(q.shape[2])[:, None] - (k.shape[2] - q.shape[2])
    visible = torch.ones_like(offset, dtype=torch.bool)
    visible &= offset >= -left if left >= 0 else visible
    visible &= offset <= right if right >= 0 else visible
    visible &= offset <= 0 if causal else visible
    scores = (q @ k.mT) * (q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale)
    return (scores.masked_fill(~visible, -torch.inf).softmax(-1) @ v).transpose(1, 2)


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
    cu_seqlens = cu_seqlens_q.tolist()
    assert cu_seqlens[0] == 0 and cu_seqlens[-1] == len(q) and cu_seqlens == cu_seqlens_k.tolist()
    lengths = [b - a for a, b in pairwise(cu_seqlens)]
    assert max(lengths) <= max_seqlen_q == max_seqlen_k and min(lengths) > 0
    rows = [x.split(lengths) for x in (q, k, v)]
    options = {"causal": causal, "window_size": window_size, "deterministic": deterministic}
    return torch.cat([flash_attn_func(*(x[None] for x in row), **options)[0] for row in zip(*rows, strict=True)])


calls: list[dict] = []


def make_fake_module() -> types.ModuleType:
    module = types.ModuleType("flash_attn")
    module.flash_attn_func, module.flash_attn_varlen_func = flash_attn_func, flash_attn_varlen_func
    return module
