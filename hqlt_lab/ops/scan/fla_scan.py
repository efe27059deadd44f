"""Linear scan with the Triton kernels of flash-linear-attention (fla); `fla_kernels` selects the kernel.

The kernels write, then read, step by step; `external_kernel_inputs` converts hold blocks and several writes per token
to that form, and documents to sequences of one long row.  With few steps and without gradients, the fused_recurrent
form of a kernel is used.  q, k, v are passed in the precision of v; gates and state are float32.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.ops.gates import DEFAULT_CONTEXT, Gates, ScanContext, map_gates
from hqlt_lab.ops.precision import at_least_float32, disable_autocast
from hqlt_lab.ops.scan.chunked import neutralize_invalid_steps
from hqlt_lab.ops.scan.external_kernel_inputs import VarlenSequences, make_varlen_sequences, unroll_steps
from hqlt_lab.ops.scan.fla_kernels import load_kernel, make_kernel_inputs

MAX_RECURRENT_STEPS = 64  # without gradients, the recurrent kernels are faster up to this many steps


def fla_scan(
    q: Tensor, k: Tensor, v: Tensor, gates: Gates, state: Tensor | None = None, context: ScanContext = DEFAULT_CONTEXT
) -> tuple[Tensor, Tensor]:
    """Scan a linear memory.

    The arguments and the result are those of `recurrent_scan` with its default step, `linear_step`.
    """
    with disable_autocast(q):
        dtype, key_dim, value_dim = q.dtype, k.shape[3], v.shape[3]
        needs_grad = torch.is_grad_enabled() and any(
            x is not None and x.requires_grad for x in (q, k, v, *gates, state)
        )
        k, v, gates = neutralize_invalid_steps(k, v, gates, context.valid_mask)
        kernel_inputs = make_kernel_inputs(
            pad_channels(q), pad_channels(k), pad_channels(v), map_gates(pad_gate_channels, gates)
        )
        steps = unroll_steps(kernel_inputs.q, kernel_inputs.step_arguments, context)
        varlen = None if steps.doc_start is None else make_varlen_sequences(steps.doc_start)
        arguments: dict[str, Any] = {
            name: to_time_major(x, varlen) for name, x in ({"q": steps.q} | steps.step_arguments).items()
        }
        if state is not None:
            state = F.pad(at_least_float32(state), (0, -value_dim % 16, 0, -key_dim % 16))
        is_short = steps.q.shape[2] <= MAX_RECURRENT_STEPS and not needs_grad
        kernel = load_kernel(kernel_inputs.kernel, recurrent=is_short)
        arguments |= initial_state_arguments(state, varlen)
        reads, last_state = kernel(**arguments, scale=1.0, output_final_state=True)
        reads = reads.view(len(q), -1, *reads.shape[2:]).transpose(1, 2)  # [B, H, L, V]
        last_state = last_state if varlen is None else last_state[varlen.last_sequence]
        return steps.select_token_reads(reads)[..., :value_dim].to(dtype), last_state[..., :key_dim, :value_dim]


def pad_channels(x: Tensor) -> Tensor:
    """Pad the channels with zeros to a multiple of 16: some kernels require it, and all are faster."""
    missing = -x.shape[-1] % 16
    return F.pad(x, (0, missing)) if missing else x


def pad_gate_channels(gate: Tensor) -> Tensor:
    return pad_channels(gate) if gate.dim() == 4 else gate


def initial_state_arguments(state: Tensor | None, varlen: VarlenSequences | None) -> dict[str, Any]:
    """Return the kernel arguments for the initial states and the boundaries of the sequences."""
    if varlen is None:
        return {"initial_state": state}
    return {"initial_state": None if state is None else varlen.initial_states(state), "cu_seqlens": varlen.cu_seqlens}


def to_time_major(x: Tensor, varlen: VarlenSequences | None) -> Tensor:
    """Transpose [B, H, L, ..] to the kernels' layout [B, L, H, ..], or with sequences [1, B * L, H, ..]."""
    x = x.transpose(1, 2)
    return x.contiguous() if varlen is None else x.flatten(0, 1)[None].contiguous()
