"""Convert any scan to the plain form of external kernels: write, then read, step by step.

    several writes    a token becomes as many steps, and reads at the last of them
    hold              the reads of a hold block come first, as steps that write nothing, then its writes
    valid_mask        an invalid step gets a zero key and no decay (`neutralize_invalid_steps`)
    doc_start         each document becomes a sequence (`make_varlen_sequences`)

A step with a zero key neither erases nor writes, whatever its gates are, and a zero query reads 0.  A block of `hold`
tokens therefore becomes twice as many steps (with one write per token), with exactly the same result.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.ops.gates import ScanContext, broadcast_gate


class UnrolledSteps(NamedTuple):
    """L steps with one write and one read each, and what is needed to find the reads of the tokens among them."""

    q: Tensor  # [B, H, L, K]
    step_arguments: dict[str, Tensor]  # [B, H, L, ...]
    doc_start: Tensor | None  # [B, L]
    tokens: int
    hold: int | None
    writes: int

    def select_token_reads(self, step_reads: Tensor) -> Tensor:
        """Select the reads of the tokens [B, H, T, V] from those of the steps [B, H, L, V]."""
        if self.hold is None:
            return step_reads[:, :, self.writes - 1 :: self.writes]
        hold_blocks = step_reads.unflatten(2, (-1, self.hold * (1 + self.writes)))
        return hold_blocks[:, :, :, : self.hold].flatten(2, 3)[:, :, : self.tokens]


def unroll_steps(q: Tensor, step_arguments: dict[str, Tensor], context: ScanContext) -> UnrolledSteps:
    """Unroll a scan into steps with one write and one read each.

    q [B, H, T, K]; keys, values and gates [B, H, T * writes, ...], of which 0 changes nothing.  Steps that `context`
    declares invalid must be 0 already.
    """
    (hold, _, doc_start), tokens = context, q.shape[2]
    writes = step_arguments["k"].shape[2] // tokens
    doc_start = None if doc_start is None else doc_start.expand(len(q), -1)
    if hold is None:
        if writes > 1:
            q = F.pad(q[:, :, :, None], (0, 0, writes - 1, 0)).flatten(2, 3)
            doc_start = None if doc_start is None else F.pad(doc_start[:, :, None], (0, writes - 1)).flatten(1)
        return UnrolledSteps(q, step_arguments, doc_start, tokens, None, writes)
    num_missing = -tokens % hold
    q = pad_hold_blocks(q, num_missing, hold, 0, hold * writes)

    def pad_writes(x: Tensor) -> Tensor:
        padded = pad_hold_blocks(broadcast_gate(x, q), num_missing * writes, hold * writes, hold, 0)
        return padded if x.dim() == 4 else padded[..., 0]

    step_arguments = {name: pad_writes(x) for name, x in step_arguments.items()}
    if doc_start is not None:
        doc_start = pad_hold_blocks(doc_start[:, None, :, None], num_missing, hold, 0, hold * writes)[:, 0, :, 0]
    return UnrolledSteps(q, step_arguments, doc_start, tokens, hold, writes)


def pad_hold_blocks(x: Tensor, num_missing: int, size: int, pad_before: int, pad_after: int) -> Tensor:
    """Append `num_missing` zeros to x [B, H, n, ..], cut it into blocks of `size`, and pad each block with zeros."""
    x = F.pad(x, (0, 0, 0, num_missing)) if num_missing else x
    return F.pad(x.unflatten(2, (-1, size)), (0, 0, pad_before, pad_after)).flatten(2, 3)


class VarlenSequences(NamedTuple):
    """The rows of a batch, cut at document starts and concatenated into one row, as varlen kernels expect them."""

    cu_seqlens: Tensor  # [N + 1] boundaries of the N sequences in the row of all B * L steps
    first_sequence: Tensor  # [B] index of the first sequence of each row
    last_sequence: Tensor  # [B] index of the last sequence of each row
    continues_state: Tensor  # [B] whether the first sequence of a row continues from the row's state

    def initial_states(self, state: Tensor) -> Tensor:
        """Return the initial state of each sequence [N, ..]: zeros, or the state [B, ..] of the row it continues."""
        row_states = state * self.continues_state.view(-1, *[1] * (state.ndim - 1))
        return (
            torch.zeros_like(state[:1])
            .repeat(len(self.cu_seqlens) - 1, *[1] * (state.ndim - 1))
            .index_copy(0, self.first_sequence, row_states)
        )


def make_varlen_sequences(doc_start: Tensor) -> VarlenSequences:
    """Cut rows into sequences at document starts [B, L] and at the start of each row."""
    rows, length = doc_start.shape
    sequence_start = doc_start.clone()
    sequence_start[:, 0] = True
    sequence_number = sequence_start.flatten().cumsum(0).view(rows, length)
    start_indices = sequence_start.flatten().nonzero()[:, 0]
    cu_seqlens = torch.cat([start_indices, start_indices.new_tensor([rows * length])])
    return VarlenSequences(cu_seqlens, sequence_number[:, 0] - 1, sequence_number[:, -1] - 1, ~doc_start[:, 0])
