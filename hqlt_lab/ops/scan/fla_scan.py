"""Linear scan with the Triton kernels of flash-linear-attention (fla).

    no erase                chunk_simple_gla               (linear attention is the case without keep gates)
    erase, no decay         chunk_delta_rule               does not support float32; then the next one, with keeps of 1
    erase and decay         chunk_gated_delta_rule
    few steps, no gradient  the fused_recurrent form of each

The kernels write, then read, step by step; `varlen` converts hold blocks and several writes per token to that form, and
documents to sequences of one long row.  q, k, v are passed in the precision of v; the state is float32.

**Rounded keys.**  A unit key rounded to bfloat16 no longer has length 1, and with beta = 2 the memory would grow with
every step.  A step erases beta |k|^2, so beta is divided by the change of |k|^2, which restores the eigenvalue.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.ops.gates import DEFAULT_CONTEXT, Gates, ScanContext
from hqlt_lab.ops.precision import at_least_float32, disable_autocast
from hqlt_lab.ops.scan.external_kernel_inputs import UnrolledSteps, VarlenSequences, make_varlen_sequences, unroll_steps

MAX_RECURRENT_STEPS = 64  # without gradients, the recurrent kernels are faster up to this many steps
MIN_LOG_KEEP = -50.0  # e^-50 is negligible, and the kernels' sums lose precision with larger magnitudes


def fla_scan(
    q: Tensor, k: Tensor, v: Tensor, gates: Gates, state: Tensor | None = None, context: ScanContext = DEFAULT_CONTEXT
) -> tuple[Tensor, Tensor]:
    """Scan a linear memory whose write gate is its erase gate, if it erases.

    The arguments and the result are those of `recurrent_scan` with its default step, `linear_step`.
    """
    with disable_autocast(q):
        dtype, value_dim = q.dtype, v.shape[3]
        v, state = pad_channels(v), None if state is None else pad_channels(at_least_float32(state))
        steps = unroll_steps(*round_inputs(q, k, v, gates), context)
        varlen = None if steps.doc_start is None else make_varlen_sequences(steps.doc_start)
        inputs = (x for x in (q, k, v, *gates, state) if x is not None)
        needs_grad = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
        kernel, arguments = select_kernel(steps, needs_grad)
        arguments |= initial_state_arguments(state, varlen)
        arguments = {
            name: to_time_major(x, varlen) if name in TIME_MAJOR_ARGUMENTS else x for name, x in arguments.items()
        }
        reads, last_state = kernel(**arguments, scale=1.0, output_final_state=True)
        reads = reads.view(len(q), -1, *reads.shape[2:]).transpose(1, 2)  # [B, H, L, V]
        last_state = last_state if varlen is None else last_state[varlen.last_sequence]
        return steps.select_token_reads(reads)[..., :value_dim].to(dtype), last_state[..., :value_dim]


TIME_MAJOR_ARGUMENTS = ("q", "k", "v", "g", "beta")


def pad_channels(x: Tensor) -> Tensor:
    """Pad the channels with zeros to a multiple of 16: some kernels require it, and all are faster."""
    return F.pad(x, (0, -x.shape[-1] % 16))


def round_inputs(q: Tensor, k: Tensor, v: Tensor, gates: Gates) -> tuple[Tensor, Tensor, Tensor, Gates]:
    """Convert q and k to the precision of v, and adjust the erase gate for the rounding of the keys."""
    exact_k, k = k, k.to(v.dtype)
    log_keep, erase, write = (None if gate is None else at_least_float32(gate) for gate in gates[:3])
    if log_keep is not None:
        log_keep = log_keep.clamp(min=MIN_LOG_KEEP)
    if erase is None and write is not None:
        v, write = (v * write[..., None]).to(v.dtype), None
    if erase is not None and exact_k.dtype != k.dtype:
        # no gradient is lost: |k|^2 changes along the key only, where a feature map with unit keys has gradient 0
        with torch.no_grad():
            exact_norm, rounded_norm = (at_least_float32(x).square().sum(-1) for x in (exact_k, k))
            correction = torch.where(rounded_norm > 0, exact_norm / rounded_norm, 1.0)
        erase = erase * correction
    return q.to(v.dtype), k, v, Gates(log_keep, erase, erase if erase is not None else write)


def select_kernel(steps: UnrolledSteps, needs_grad: bool) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return the kernel and its arguments, which are still [B, H, L, ..]."""
    arguments: dict[str, Any] = {"q": steps.q, "k": steps.k, "v": steps.v}
    log_keep, beta = steps.gates[:2]
    is_short = steps.k.shape[2] <= MAX_RECURRENT_STEPS and not needs_grad
    if beta is None:
        from fla.ops.simple_gla import chunk_simple_gla, fused_recurrent_simple_gla

        return fused_recurrent_simple_gla if is_short else chunk_simple_gla, arguments | {"g": log_keep}
    if log_keep is None and (is_short or steps.v.dtype != torch.float32):
        from fla.ops.delta_rule import chunk_delta_rule, fused_recurrent_delta_rule

        return fused_recurrent_delta_rule if is_short else chunk_delta_rule, arguments | {"beta": beta}
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule

    log_keep = torch.zeros_like(beta) if log_keep is None else log_keep
    kernel = fused_recurrent_gated_delta_rule if is_short else chunk_gated_delta_rule
    return kernel, arguments | {"g": log_keep, "beta": beta}


def initial_state_arguments(state: Tensor | None, varlen: VarlenSequences | None) -> dict[str, Any]:
    """Return the kernel arguments for the initial states and the boundaries of the sequences."""
    if varlen is None:
        return {"initial_state": state}
    return {"initial_state": None if state is None else varlen.initial_states(state), "cu_seqlens": varlen.cu_seqlens}


def to_time_major(x: Tensor | None, varlen: VarlenSequences | None) -> Tensor | None:
    """Transpose [B, H, L, ..] to the kernels' layout [B, L, H, ..], or with sequences [1, B * L, H, ..]."""
    if x is None:
        return None
    x = x.transpose(1, 2)
    return x.contiguous() if varlen is None else x.flatten(0, 1)[None].contiguous()
