"""The linear scan by the Triton kernels of flash-linear-attention.

    nothing erased          chunk_simple_gla               (linear attention is the case without keeps)
    erased, nothing fades   chunk_delta_rule               in float32, which it refuses, the next one with keeps of 1
    erased and fading       chunk_gated_delta_rule
    few steps, no gradient  the fused_recurrent form of each

The kernels know write, then read, step by step; `spread` puts holds and several writes into that form, and documents
become sequences of one long row.  q, k, v go in with the precision of v, the state is float32 in and out.

**Rounded keys.**  A unit key rounded to bfloat16 is not one, and where beta is 2 the memory would grow with every
step.  What erases is beta |k|^2, so beta is divided by what rounding did to |k|^2: the eigenvalue stays what it was.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.ops.spread import Sequences, Spread, sequences, spread
from hqlt_lab.ops.steps import PLAIN, Course, Gates, no_autocast, precise

SHORT = 64  # steps up to which one at a time is faster than a chunk, where no gradient is needed
LEAST = -50.0  # log keep: e^-50 is nothing beside 1, and the kernels' sums of larger ones lose digits


def fla_scan(
    q: Tensor, k: Tensor, v: Tensor, gates: Gates, state: Tensor | None = None, course: Course = PLAIN
) -> tuple[Tensor, Tensor]:
    """What `recurrent` does with `linear_step`, where what erases also writes."""
    with no_autocast(q):
        dtype, values = q.dtype, v.shape[3]
        v, state = filled_up(v), None if state is None else filled_up(precise(state))
        steps = spread(*rounded(q, k, v, gates), course)
        cut = None if steps.starts is None else sequences(steps.starts)
        needed = (x for x in (q, k, v, *gates, state) if x is not None)
        learning = torch.is_grad_enabled() and any(x.requires_grad for x in needed)
        kernel, arguments = kernel_for(steps, learning)
        arguments |= first_state(state, cut)
        arguments = {name: by_time(x, cut) if name in BY_TIME else x for name, x in arguments.items()}
        answers, last = kernel(**arguments, scale=1.0, output_final_state=True)
        answers = answers.view(len(q), -1, *answers.shape[2:]).transpose(1, 2)  # [B, H, L, V]
        last = last if cut is None else last[cut.last]
        return steps.reads(answers)[..., :values].to(dtype), last[..., :values]


BY_TIME = ("q", "k", "v", "g", "beta")


def filled_up(x: Tensor) -> Tensor:
    """Channels up to a multiple of 16, with zeros: some kernels refuse odd numbers, and all load whole lines faster."""
    return F.pad(x, (0, -x.shape[-1] % 16))


def rounded(q: Tensor, k: Tensor, v: Tensor, gates: Gates) -> tuple[Tensor, Tensor, Tensor, Gates]:
    """All in the precision of v, and a strength that makes up for what that did to the keys."""
    exact, k = k, k.to(v.dtype)
    log_keep, erase, write = (None if gate is None else precise(gate) for gate in gates)
    if log_keep is not None:
        log_keep = log_keep.clamp(min=LEAST)
    if erase is None and write is not None:
        v, write = (v * write[..., None]).to(v.dtype), None
    if erase is not None and exact.dtype != k.dtype:
        with torch.no_grad():  # along the key only, where a feature map that makes unit keys lets no gradient through
            before, after = (precise(x).square().sum(-1) for x in (exact, k))
            change = torch.where(after > 0, before / after, 1.0)
        erase = erase * change
    return q.to(v.dtype), k, v, Gates(log_keep, erase, erase if erase is not None else write)


def kernel_for(steps: Spread, learning: bool) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The kernel, and what it is to be called with, still [B, H, L, ..]."""
    arguments: dict[str, Any] = {"q": steps.q, "k": steps.k, "v": steps.v}
    log_keep, beta, _ = steps.gates
    short = steps.k.shape[2] <= SHORT and not learning
    if beta is None:
        from fla.ops.simple_gla import chunk_simple_gla, fused_recurrent_simple_gla

        return fused_recurrent_simple_gla if short else chunk_simple_gla, arguments | {"g": log_keep}
    if log_keep is None and (short or steps.v.dtype != torch.float32):
        from fla.ops.delta_rule import chunk_delta_rule, fused_recurrent_delta_rule

        return fused_recurrent_delta_rule if short else chunk_delta_rule, arguments | {"beta": beta}
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule

    log_keep = torch.zeros_like(beta) if log_keep is None else log_keep
    kernel = fused_recurrent_gated_delta_rule if short else chunk_gated_delta_rule
    return kernel, arguments | {"g": log_keep, "beta": beta}


def first_state(state: Tensor | None, cut: Sequences | None) -> dict[str, Any]:
    """What the sequences begin with, and where they lie."""
    if cut is None:
        return {"initial_state": state}
    return {"initial_state": None if state is None else cut.states(state), "cu_seqlens": cut.borders}


def by_time(x: Tensor | None, cut: Sequences | None) -> Tensor | None:
    """[B, H, L, ..] as the kernels have it: [B, L, H, ..], or with sequences [1, B * L, H, ..]."""
    if x is None:
        return None
    x = x.transpose(1, 2)
    return x.contiguous() if cut is None else x.flatten(0, 1)[None].contiguous()
