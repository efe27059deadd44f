"""Chunk-parallel scan of the general linear memory: a decay per key channel, and a lookup key of its own.

    S_t = D_t S_{t-1} + k_t (u_t - l_t)^T        D_t = diag(e^{g_t})        read: S_t^T q_t
    l_t = S_{t-1}^T D_t p_t, or S_{t-1}^T p_t if the lookup is early

`channel_gate_chunk` has the algebra of one chunk.  As in `chunked`, forward and backward are one torch operator each.

Saved for backward, per token and head: the new values (V numbers per write), the inverse of the triangular system (one
row of a chunk) and the initial states of the chunks (K V / chunk size).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.ops.autograd_context import AutogradContext
from hqlt_lab.ops.gates import Gates, OptionalTensor, broadcast_gate
from hqlt_lab.ops.scan.channel_gate_chunk import (
    BlockLayout,
    ChannelGateChunk,
    ChannelGateChunkBackward,
    ChannelGateInputs,
    ChunkDocuments,
    channel_gate_chunk_forward,
    pad_steps,
)
from hqlt_lab.ops.scan.chunk_layout import ChunkLayout
from hqlt_lab.ops.scan.scratch_buffers import Buffers

CACHE_ELEMENTS = 2**16  # elements of a working matrix, rows x writes x channels: float64 ones take 0.5 MB


def channel_gate_scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gates: Gates,
    state: Tensor | None,
    doc_start: Tensor | None,
    hold: int | None,
    chunk_size: int,
) -> tuple[Tensor, Tensor]:
    """Scan a linear memory with any gates.  Return the reads [B, H, T, V] and the last state, in the dtype of q."""
    log_keep = torch.zeros_like(k) if gates.log_keep is None else broadcast_gate(gates.log_keep, k).expand_as(k)
    lookup, early = gates.lookup_key(k), gates.early_lookup is not None
    inputs = (q, k, gates.written_values(v), lookup, log_keep, state)
    needs_grad = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
    reads, last_state, *_ = channel_gate_scan_op(*inputs, doc_start, hold or 0, chunk_size, early, needs_grad)
    return reads, last_state


class ChannelGateScanInputs:
    """Inputs of a scan, flattened to R = B * H rows, and cut into chunks."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        lookup: OptionalTensor,
        log_keep: Tensor,
        doc_start: OptionalTensor,
        chunk_layout: ChunkLayout,
        early: bool,
    ) -> None:
        """Flatten q, k, lookup and log_keep [B, H, ..] and doc_start [B, T] to rows."""
        self.q, self.k, self.log_keep = q.flatten(0, 1), k.flatten(0, 1), log_keep.flatten(0, 1)
        self.lookup = None if lookup is None else lookup.flatten(0, 1)
        self.doc_start = None if doc_start is None else doc_start.repeat_interleave(q.shape[1], 0)
        self.chunk_layout, self.early = chunk_layout, early
        self.lookup_stride = count_lookup_stride(k, lookup)
        self.block_layouts: dict[tuple[int, bool], BlockLayout] = {}

    def row_groups(self, value_dim: int) -> Iterator[slice]:
        """Yield groups of rows that fit the CPU cache; on other devices one group of all rows."""
        rows, channels = len(self.q), max(self.k.shape[2], value_dim)
        group_size = rows
        if self.q.device.type == "cpu":
            group_size = max(CACHE_ELEMENTS // (self.chunk_layout.chunk_count_and_width[1] * channels), 1)
        return (slice(start, min(start + group_size, rows)) for start in range(0, rows, group_size))

    def block_layout(self, index: int) -> BlockLayout:
        """Return the blocks of a chunk.  Chunks of the same shape share them."""
        tokens, intra_chunk = self.chunk_layout.chunk_tokens[index], self.chunk_layout.chunk_spans[index].intra_chunk
        if (tokens, intra_chunk) not in self.block_layouts:
            writes, hold = self.chunk_layout.writes, self.chunk_layout.hold
            layout = BlockLayout(
                tokens, writes, hold if intra_chunk else None, intra_chunk, self.lookup_stride, self.early
            )
            self.block_layouts[tokens, intra_chunk] = layout.to_device(self.q.device)
        return self.block_layouts[tokens, intra_chunk]

    def make_chunk(self, index: int, rows: slice, buffers: Buffers) -> ChannelGateChunk:
        layout, span = self.block_layout(index), self.chunk_layout.chunk_spans[index]
        lookup = None
        if self.lookup is not None:
            lookup = self.pad_writes(self.lookup, index, rows, layout.padded_writes // self.lookup_stride)
            lookup = lookup.unflatten(1, (layout.num_blocks, -1))
        k, log_keep = (
            self.pad_writes(x, index, rows, layout.padded_writes).unflatten(1, (layout.num_blocks, -1))
            for x in (self.k, self.log_keep)
        )
        inputs = ChannelGateInputs(layout.split_queries(self.q[rows, span.start : span.stop]), k, lookup, log_keep)
        documents = None
        if self.doc_start is not None:
            documents = ChunkDocuments(self.doc_start[rows, span.start : span.stop], layout, k.dtype)
        return ChannelGateChunk(inputs, layout, documents, buffers)

    def pad_writes(self, x: Tensor, index: int, rows: slice, length: int) -> Tensor:
        """Return the steps of one chunk of x [R, T * n, ..], padded with zeros to `length`."""
        span, per_token = self.chunk_layout.chunk_spans[index], x.shape[1] // self.chunk_layout.tokens
        return pad_steps(x[rows, span.start * per_token : span.stop * per_token], length)

    def mask_held(self, x: Tensor, index: int, rows: slice) -> Tensor:
        """Set x [R, tokens, ..] of a chunk that reads a held state to 0 if its hold block starts a document."""
        if self.doc_start is None:
            return x
        spans = self.chunk_layout.chunk_spans
        return x * ~self.doc_start[rows, spans[spans[index].state_from].start, None, None]


def count_lookup_stride(k: Tensor, lookup: OptionalTensor) -> int:
    """Return 1 if every write looks up, the writes per token if only the first of them does, 0 if none does."""
    return 0 if lookup is None else k.shape[2] // lookup.shape[2]


class ChannelGateScanShapes(NamedTuple):
    """Shapes of the outputs of `channel_gate_scan_op`.

    Those that only the backward pass needs are (0,) if it is not run.
    """

    reads: tuple[int, ...]
    last_state: tuple[int, ...]
    states: tuple[int, ...]  # the initial state of each chunk, and the last state
    new_values: tuple[int, ...]
    inverses: tuple[int, ...]


def output_shapes(
    q: Tensor, k: Tensor, values: Tensor, lookup: OptionalTensor, chunk_layout: ChunkLayout, needs_grad: bool
) -> ChannelGateScanShapes:
    (batch, heads), rows, value_dim = q.shape[:2], q.shape[0] * q.shape[1], values.shape[3]
    num_chunks, max_writes = chunk_layout.chunk_count_and_width
    saves_solution = needs_grad and lookup is not None
    lookups = 0 if lookup is None else lookup.shape[2]
    return ChannelGateScanShapes(
        (batch, heads, q.shape[2], value_dim),
        (batch, heads, k.shape[3], value_dim),
        (num_chunks + 1, rows, k.shape[3], value_dim) if needs_grad else (0,),
        (rows, k.shape[2], value_dim) if saves_solution else (0,),
        (rows, lookups, max_writes // max(count_lookup_stride(k, lookup), 1)) if saves_solution else (0,),
    )


@torch.library.custom_op("hqlt::channel_gate_scan", mutates_args=())
def channel_gate_scan_op(
    q: Tensor,
    k: Tensor,
    values: Tensor,
    lookup: OptionalTensor,
    log_keep: Tensor,
    state: OptionalTensor,
    doc_start: OptionalTensor,
    hold: int,
    chunk_size: int,
    early: bool,
    needs_grad: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return reads, last state, and for the backward pass the states, the new values and the inverses.

    q [B, H, T, K]; k, log_keep [B, H, L, K] and values [B, H, L, V] with L = T * writes; lookup [B, H, L or T, K].
    """
    chunk_layout = ChunkLayout.from_shapes(q.shape, k.shape, hold, chunk_size)
    inputs = ChannelGateScanInputs(q, k, lookup, log_keep, doc_start, chunk_layout, early)
    shapes = output_shapes(q, k, values, lookup, chunk_layout, needs_grad)
    outputs = ChannelGateScanOutputs(*(q.new_empty(shape) for shape in shapes[:1] + shapes[3:]))
    states = q.new_empty(len(chunk_layout.chunk_spans) + 1, len(inputs.q), k.shape[3], values.shape[3])
    states[0] = 0.0 if state is None else state.flatten(0, 1)
    for rows in inputs.row_groups(values.shape[3]):
        scan_rows_forward(inputs, rows, values.flatten(0, 1), states, outputs, needs_grad and lookup is not None)
    last_state = states[-1].unflatten(0, q.shape[:2]).clone()
    saved_states = states if needs_grad else q.new_empty(shapes.states)
    return outputs.reads, last_state, saved_states, outputs.new_values, outputs.inverses


class ChannelGateScanOutputs(NamedTuple):
    """Outputs that the forward pass fills chunk by chunk."""

    reads: Tensor  # [B, H, T, V]
    new_values: Tensor  # [R, L, V]
    inverses: Tensor  # [R, lookups, lookups of a chunk]


def scan_rows_forward(
    inputs: ChannelGateScanInputs,
    rows: slice,
    values: Tensor,
    states: Tensor,
    outputs: ChannelGateScanOutputs,
    saves_solution: bool,
) -> None:
    """Scan some rows chunk by chunk, writing to `states` and `outputs`."""
    buffers, reads, writes = Buffers(), outputs.reads.flatten(0, 1), inputs.chunk_layout.writes
    for index, span in enumerate(inputs.chunk_layout.chunk_spans):
        chunk = inputs.make_chunk(index, rows, buffers)
        layout = chunk.layout
        chunk_values = inputs.pad_writes(values, index, rows, layout.padded_writes)
        solved = channel_gate_chunk_forward(chunk, chunk_values, states[index, rows], states[index + 1, rows])
        if span.intra_chunk:
            reads[rows, span.start : span.stop] = layout.join_queries(solved.reads)
        else:
            queries = inputs.mask_held(inputs.q[rows, span.start : span.stop], index, rows)
            reads[rows, span.start : span.stop] = queries @ states[span.state_from, rows]
        if saves_solution and solved.inverse is not None:
            start, stop = span.start * writes, span.stop * writes
            outputs.new_values[rows, start:stop].copy_(solved.new_values[:, : stop - start])
            stride = layout.lookup_stride
            num_lookups = layout.num_writes // stride
            inverse = outputs.inverses[rows, start // stride : stop // stride]
            inverse[..., :num_lookups].copy_(solved.inverse[:, :num_lookups, :num_lookups])
            inverse[..., num_lookups:] = 0.0  # outputs of an operator must not hold uninitialized memory


@torch.library.custom_op("hqlt::channel_gate_scan_backward", mutates_args=())
def channel_gate_scan_backward_op(
    grad_reads: OptionalTensor,
    grad_last_state: OptionalTensor,
    q: Tensor,
    k: Tensor,
    values: Tensor,
    lookup: OptionalTensor,
    log_keep: Tensor,
    doc_start: OptionalTensor,
    states: Tensor,
    new_values: Tensor,
    inverses: Tensor,
    hold: int,
    chunk_size: int,
    early: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of q, k, values, lookup (empty if it is None), log_keep and the initial state."""
    chunk_layout = ChunkLayout.from_shapes(q.shape, k.shape, hold, chunk_size)
    inputs = ChannelGateScanInputs(q, k, lookup, log_keep, doc_start, chunk_layout, early)
    grads = _empty_grads(q, k, values, lookup, log_keep, states)
    if grad_reads is None:
        grad_reads = q.new_zeros(*q.shape[:3], values.shape[3])
    grad_state = torch.zeros_like(states[0]) if grad_last_state is None else grad_last_state.flatten(0, 1).clone()
    written = values.flatten(0, 1) if lookup is None else new_values
    for rows in inputs.row_groups(values.shape[3]):
        scan_rows_backward(
            inputs, rows, (written, inverses), states, grad_reads.flatten(0, 1), grad_state[rows], [*grads[:5]]
        )
    grads[5].copy_(grad_state.view_as(grads[5]))
    return grads


def _empty_grads(
    q: Tensor, k: Tensor, values: Tensor, lookup: OptionalTensor, log_keep: Tensor, states: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Allocate the outputs of `channel_gate_scan_backward_op`."""
    grad_q, grad_k, grad_values, grad_log_keep = (q.new_empty(x.shape) for x in (q, k, values, log_keep))
    grad_lookup = q.new_empty(0) if lookup is None else q.new_empty(lookup.shape)
    grad_state = q.new_empty(*q.shape[:2], *states.shape[2:])
    return grad_q, grad_k, grad_values, grad_lookup, grad_log_keep, grad_state


def scan_rows_backward(
    inputs: ChannelGateScanInputs,
    rows: slice,
    saved: tuple[Tensor, Tensor],
    states: Tensor,
    grad_reads: Tensor,
    grad_state: Tensor,
    grads: list[Tensor],
) -> None:
    """Backpropagate through some rows, last chunk first.

    Writes the gradients of q, k, values, lookup and log_keep [B, H, ..] to `grads`, and changes `grad_state` from the
    gradient of the last state to that of the initial state.
    """
    buffers, (written, inverses) = Buffers(), saved
    grad_q, *write_grads = (grad.flatten(0, 1) if grad.dim() > 1 else None for grad in grads)
    assert grad_q is not None
    grad_held = torch.zeros_like(grad_state)  # summed over the chunks of a hold block, which all read the same state
    for index, span in reversed(list(enumerate(inputs.chunk_layout.chunk_spans))):
        chunk = inputs.make_chunk(index, rows, buffers)
        layout, chunk_grad_reads = chunk.layout, grad_reads[rows, span.start : span.stop]
        new_values = inputs.pad_writes(written, index, rows, layout.padded_writes)
        inverse = read_inverse(inputs, index, rows, layout, inverses)
        chunk_backward = ChannelGateChunkBackward(chunk, new_values, inverse, states[index, rows])
        chunk_grads = chunk_backward.compute_grads(layout.split_queries(chunk_grad_reads), grad_state)
        if span.intra_chunk:
            grad_q[rows, span.start : span.stop] = layout.join_queries(chunk_grads.q)
        else:
            masked_grad = inputs.mask_held(chunk_grad_reads, index, rows)
            grad_q[rows, span.start : span.stop] = masked_grad @ states[span.state_from, rows].mT
            grad_held += inputs.q[rows, span.start : span.stop].mT @ masked_grad
            if span.state_from == index:
                grad_state += grad_held
                grad_held.zero_()
        for out, grad in zip(write_grads, chunk_grads[1:], strict=True):
            if out is not None and grad is not None:
                per_token = out.shape[1] // inputs.chunk_layout.tokens
                length = (span.stop - span.start) * per_token
                out[rows, span.start * per_token : span.stop * per_token].copy_(grad[:, :length])


def read_inverse(
    inputs: ChannelGateScanInputs, index: int, rows: slice, layout: BlockLayout, inverses: Tensor
) -> Tensor | None:
    """Return the saved inverse of a chunk, with identity rows for padding."""
    stride = layout.lookup_stride
    if not stride:
        return None
    span, writes = inputs.chunk_layout.chunk_spans[index], inputs.chunk_layout.writes
    num_lookups, padded = layout.num_writes // stride, layout.padded_writes // stride
    inverse = inverses[rows, span.start * writes // stride : span.stop * writes // stride, :num_lookups]
    missing = padded - num_lookups
    # the values of padding are 0, so a zero block serves as well as the identity
    return F.pad(inverse, (0, missing, 0, missing)) if missing else inverse


@channel_gate_scan_op.register_fake
def _fake_channel_gate_scan(
    q: Tensor,
    k: Tensor,
    values: Tensor,
    lookup: OptionalTensor,
    log_keep: Tensor,
    state: OptionalTensor,
    doc_start: OptionalTensor,
    hold: int,
    chunk_size: int,
    early: bool,
    needs_grad: bool,
) -> tuple[Tensor, ...]:
    chunk_layout = ChunkLayout.from_shapes(q.shape, k.shape, hold, chunk_size)
    return tuple(q.new_empty(shape) for shape in output_shapes(q, k, values, lookup, chunk_layout, needs_grad))


@channel_gate_scan_backward_op.register_fake
def _fake_channel_gate_scan_backward(
    grad_reads: OptionalTensor,
    grad_last_state: OptionalTensor,
    q: Tensor,
    k: Tensor,
    values: Tensor,
    lookup: OptionalTensor,
    log_keep: Tensor,
    doc_start: OptionalTensor,
    states: Tensor,
    new_values: Tensor,
    inverses: Tensor,
    hold: int,
    chunk_size: int,
    early: bool,
) -> tuple[Tensor, ...]:
    return _empty_grads(q, k, values, lookup, log_keep, states)


def setup_context(ctx: AutogradContext, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, k, values, lookup, log_keep, _, doc_start, hold, chunk_size, early, _ = inputs
    ctx.save_for_backward(q, k, values, lookup, log_keep, doc_start, *output[2:])
    ctx.constants = (hold, chunk_size, early)
    ctx.set_materialize_grads(False)


def backward(
    ctx: AutogradContext, grad_reads: OptionalTensor, grad_last_state: OptionalTensor, *_: Any
) -> tuple[OptionalTensor, ...]:
    grads = channel_gate_scan_backward_op(grad_reads, grad_last_state, *ctx.saved_tensors, *ctx.constants)
    is_needed = zip(grads, ctx.needs_input_grad[:6], strict=True)
    return (*(grad if needed else None for grad, needed in is_needed), *[None] * 5)


channel_gate_scan_op.register_autograd(backward, setup_context=setup_context)
