"""Chunk-parallel scan of a linear memory: parallel within a chunk, recurrent between chunks.

Forward and backward are one torch operator each, since torch.compile would otherwise unroll the loop over chunks.  The
operator supports first-order reverse-mode gradients only; second derivatives and torch.func need `recurrent_scan`.

Saved for backward, per token and head: the recalled values (V numbers), the inverse of the triangular system (one row
of a chunk) and the initial states of the chunks (K V / chunk size).  Everything else is recomputed, so memory is linear
in the sequence length: with 64 channels and chunks of 32 it is 224 numbers, where q, k and v have 192.

Yang et al. 2024, arXiv:2406.06484 (delta rule); arXiv:2412.06464 (with keep gates).
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from hqlt_lab.ops.autograd_context import AutogradContext
from hqlt_lab.ops.gates import DEFAULT_CONTEXT, Gates, OptionalTensor, ScanContext, fill_last_values, map_gates
from hqlt_lab.ops.precision import at_least_float32, disable_autocast, is_forward_mode_ad
from hqlt_lab.ops.scan.channel_gate_scan import channel_gate_scan
from hqlt_lab.ops.scan.chunk_decay import log_keep_grad
from hqlt_lab.ops.scan.chunk_layout import ChunkLayout
from hqlt_lab.ops.scan.chunked_inputs import RowGroup, ScanInputs
from hqlt_lab.ops.scan.recurrent import recurrent_scan
from hqlt_lab.ops.scan.scalar_gate_chunk import (
    ChunkBackward,
    ChunkStates,
    SolvedChunk,
    carry_state,
    read_chunk,
    solve_chunk,
)
from hqlt_lab.ops.scan.scratch_buffers import Buffers

CHUNK_SIZE = 32  # writes per chunk


def chunked_scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gates: Gates,
    state: Tensor | None = None,
    context: ScanContext = DEFAULT_CONTEXT,
    *,
    chunk_size: int = CHUNK_SIZE,
) -> tuple[Tensor, Tensor]:
    """Scan a linear memory chunk by chunk.

    The arguments, the result and the gradients are those of `recurrent_scan` with its default step, `linear_step`.
    Gates that are one number per head and write have a faster form than those with channels or other lookup keys.
    """
    if q.shape[2] == 1 or is_forward_mode_ad():  # a single token has nothing to parallelize
        return recurrent_scan(q, k, v, gates, state, context)
    with disable_autocast(q):
        dtype, tied_gates = q.dtype, gates.write is gates.erase
        q, k, v = at_least_float32(q), at_least_float32(k), at_least_float32(fill_last_values(v, k))
        gates = map_gates(at_least_float32, gates)
        k, v, gates = neutralize_invalid_steps(k, v, gates, context.valid_mask)
        doc_start = None if context.doc_start is None else context.doc_start.expand(len(q), -1)
        if not gates.has_scalar_form:
            reads, last_state = channel_gate_scan(q, k, v, gates, state, doc_start, context.hold, chunk_size)
            return reads.to(dtype), last_state
        inputs = (q, k, v, gates.log_keep, gates.erase, None if tied_gates else gates.write, state)
        needs_grad = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
        reads, last_state, *_ = scan_op(*inputs, doc_start, context.hold or 0, chunk_size, tied_gates, needs_grad)
        return reads.to(dtype), last_state


def neutralize_invalid_steps(
    k: Tensor, v: Tensor, gates: Gates, valid_mask: Tensor | None
) -> tuple[Tensor, Tensor, Gates]:
    """Make invalid steps no-ops, whatever values they hold: zero keys, values and lookup keys, and no decay."""
    if valid_mask is None:
        return k, v, gates

    def zero_invalid(x: Tensor) -> Tensor:
        per_token = x.shape[2] // valid_mask.shape[1]  # 1 for first lookup keys and last values
        invalid = ~valid_mask.repeat_interleave(per_token, 1)[:, None]  # [B, 1, T * per_token]
        return x.masked_fill(invalid if x.dim() == 3 else invalid[..., None], 0.0)

    log_keep, lookup, early_lookup = (
        None if x is None else zero_invalid(x) for x in (gates.log_keep, gates.lookup, gates.early_lookup)
    )
    gates = gates._replace(log_keep=log_keep, lookup=lookup, early_lookup=early_lookup)
    return zero_invalid(k), zero_invalid(v), gates


class ScanOutputShapes(NamedTuple):
    """Shapes of the five outputs of `scan_op`; (0,) for those that only the backward pass needs if it is not run."""

    reads: tuple[int, ...]
    last_state: tuple[int, ...]
    states: tuple[int, ...]  # the initial state of each chunk, and the last state
    recalled_values: tuple[int, ...]
    inverses: tuple[int, ...]


def output_shapes(
    q: Tensor, k: Tensor, v: Tensor, erase: OptionalTensor, chunk_layout: ChunkLayout, needs_grad: bool
) -> ScanOutputShapes:
    (batch, heads), rows, value_dim = q.shape[:2], q.shape[0] * q.shape[1], v.shape[3]
    num_chunks, max_chunk_writes = chunk_layout.chunk_count_and_width
    saves_solution = needs_grad and erase is not None
    return ScanOutputShapes(
        (batch, heads, q.shape[2], value_dim),
        (batch, heads, k.shape[3], value_dim),
        (num_chunks + 1, rows, k.shape[3], value_dim) if needs_grad else (0,),
        (rows, k.shape[2], value_dim) if saves_solution else (0,),
        (rows, k.shape[2], max_chunk_writes) if saves_solution else (0,),
    )


@torch.library.custom_op("hqlt::scan", mutates_args=())
def scan_op(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_keep: OptionalTensor,
    erase: OptionalTensor,
    write: OptionalTensor,
    state: OptionalTensor,
    doc_start: OptionalTensor,
    hold: int,
    chunk_size: int,
    tied_gates: bool,
    needs_grad: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return reads, last state, and for the backward pass the states, the recalled values and the inverses."""
    chunk_layout = ChunkLayout.from_shapes(q.shape, k.shape, hold, chunk_size)
    inputs = ScanInputs(q, k, v, (log_keep, erase, write), doc_start, tied_gates, chunk_layout)
    shapes = output_shapes(q, k, v, erase, chunk_layout, needs_grad)
    reads = q.new_empty(shapes.reads)
    recalled_values, inverses = q.new_empty(shapes.recalled_values), q.new_empty(shapes.inverses)
    states = q.new_empty(len(chunk_layout.chunk_spans) + 1, len(inputs.q), k.shape[3], v.shape[3])
    states[0] = 0.0 if state is None else state.flatten(0, 1)
    saved = (recalled_values, inverses) if needs_grad and erase is not None else None
    for rows in inputs.row_groups():
        scan_rows_forward(rows, states, state is None, reads.flatten(0, 1), saved)
    last_state = states[-1].unflatten(0, q.shape[:2]).clone()
    return reads, last_state, states if needs_grad else q.new_empty(shapes.states), recalled_values, inverses


def scan_rows_forward(
    rows: RowGroup, states: Tensor, starts_empty: bool, reads: Tensor, saved: tuple[Tensor, Tensor] | None
) -> None:
    """Scan some rows chunk by chunk, writing to `reads`, `states` and `saved` (recalled values and inverses)."""
    buffers, read_chunks = Buffers(), rows.split_chunks(reads, 1)
    saved_chunks = None if saved is None else (rows.split_chunks(saved[0]), rows.split_chunks(saved[1]))
    chunk_states = states[:, rows.rows].unbind(0)
    for index, span in enumerate(rows.chunk_layout.chunk_spans):
        chunk = rows.make_chunk(index)
        initial_state = None if starts_empty and index == 0 else chunk_states[index]
        read_state = None if starts_empty and span.state_from == 0 else chunk_states[span.state_from]
        new_values, solved = solve_chunk(chunk, initial_state, buffers)
        read_chunks[index].copy_(read_chunk(chunk, read_state, new_values, buffers))
        carry_state(chunk, initial_state, new_values, buffers, out=chunk_states[index + 1])
        if saved_chunks is not None and solved is not None:
            recalled_values, inverse = saved_chunks[0][index], saved_chunks[1][index]
            recalled_values.copy_(solved.recalled_values)
            inverse[..., : new_values.shape[1]].copy_(solved.inverse)
            inverse[..., new_values.shape[1] :] = 0.0  # outputs of an operator must not hold uninitialized memory


@torch.library.custom_op("hqlt::scan_backward", mutates_args=())
def scan_backward_op(
    grad_reads: OptionalTensor,
    grad_last_state: OptionalTensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_keep: OptionalTensor,
    erase: OptionalTensor,
    write: OptionalTensor,
    doc_start: OptionalTensor,
    states: Tensor,
    recalled_values: Tensor,
    inverses: Tensor,
    hold: int,
    chunk_size: int,
    tied_gates: bool,
    starts_empty: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of q, k, v, the three gates and the initial state; an empty tensor for an input of None."""
    chunk_layout = ChunkLayout.from_shapes(q.shape, k.shape, hold, chunk_size)
    inputs = ScanInputs(q, k, v, (log_keep, erase, write), doc_start, tied_gates, chunk_layout)
    grads = _empty_grads(q, k, v, log_keep, erase, write, states, starts_empty)
    has_grad = (True, True, True, log_keep is not None, erase is not None, write is not None, not starts_empty)
    grad_rows = [grad.flatten(0, 1) if present else None for grad, present in zip(grads, has_grad, strict=True)]
    if grad_reads is None:
        grad_reads = q.new_zeros(*q.shape[:3], v.shape[3])
    grad_last_rows = None if grad_last_state is None else grad_last_state.flatten(0, 1)
    for rows in inputs.row_groups():
        scan_rows_backward(
            rows, states, (recalled_values, inverses), grad_reads.flatten(0, 1), grad_last_rows, grad_rows
        )
    return grads


def _empty_grads(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_keep: OptionalTensor,
    erase: OptionalTensor,
    write: OptionalTensor,
    states: Tensor,
    starts_empty: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Allocate the outputs of `scan_backward_op`."""

    def empty_like(x: OptionalTensor) -> Tensor:
        return q.new_empty(0) if x is None else q.new_empty(x.shape)

    grad_state = q.new_empty(0) if starts_empty else q.new_empty(*q.shape[:2], *states.shape[2:])
    gate_grads = (empty_like(log_keep), empty_like(erase), empty_like(write))
    return (empty_like(q), empty_like(k), empty_like(v), *gate_grads, grad_state)


def scan_rows_backward(
    rows: RowGroup,
    states: Tensor,
    saved: tuple[Tensor, Tensor],
    grad_reads: Tensor,
    grad_last_state: Tensor | None,
    grad_buffers: list[OptionalTensor],
) -> None:
    """Backpropagate through some rows, last chunk first.

    Writes the gradients of q, k, v, the three gates and the initial state to `grad_buffers`.
    """
    *input_grad_buffers, state_grad_buffer = grad_buffers
    starts_empty = state_grad_buffer is None
    buffers = Buffers()
    out_chunks = [rows.split_chunks(x, 1 if i == 0 else None) for i, x in enumerate(input_grad_buffers)]
    grad_read_chunks = rows.split_chunks(grad_reads, 1)
    saved_chunks = None
    if rows.inputs.erase is not None:
        saved_chunks = (rows.split_chunks(saved[0]), rows.split_chunks(saved[1]))
    chunk_states = states[:, rows.rows].unbind(0)
    grad_state = None if grad_last_state is None else grad_last_state[rows.rows].clone()
    grad_held_state: Tensor | None = None  # summed over the chunks of a hold block, which all read the same state
    for index, span in reversed(list(enumerate(rows.chunk_layout.chunk_spans))):
        chunk = rows.make_chunk(index)
        solved = None
        if saved_chunks is not None:
            solved = SolvedChunk(saved_chunks[0][index], saved_chunks[1][index][..., : chunk.k.shape[1]])
        initial_state = None if starts_empty and index == 0 else chunk_states[index]
        read_state = None if starts_empty and span.state_from == 0 else chunk_states[span.state_from]
        states_used = ChunkStates(initial_state, read_state)
        chunk_backward = ChunkBackward(chunk, solved, states_used, rows.inputs.log_keep is not None, buffers)
        grad_state, grad_read_state = chunk_backward.compute_grads(grad_read_chunks[index], grad_state)
        if grad_read_state is not None and span.intra_chunk:
            grad_held_state = grad_read_state
        elif grad_read_state is not None:
            # cloned, since the next chunk overwrites its buffer
            grad_held_state = (
                grad_read_state.clone() if grad_held_state is None else grad_held_state.add_(grad_read_state)
            )
        if grad_held_state is not None and span.state_from == index:
            assert grad_state is not None  # the state that was read is the initial state, so both have a gradient
            grad_state, grad_held_state = grad_state.add_(grad_held_state), None
        outs = [chunks[index] for chunks in out_chunks]
        store_chunk_grads(chunk_backward, outs, rows.visible_writes(index), rows.inputs.tied_gates)
    if state_grad_buffer is not None and grad_state is not None:
        state_grad_buffer[rows.rows] = grad_state


def store_chunk_grads(
    chunk_backward: ChunkBackward, outs: list[OptionalTensor], visible_writes: Tensor | None, tied_gates: bool
) -> None:
    """Copy the gradients of one chunk to `outs`: of q, k, v, log_keep, erase and write."""
    grad_erase, grad_write = chunk_backward.grad_erase, chunk_backward.grad_write
    if tied_gates and grad_erase is not None and grad_write is not None:
        grad_erase, grad_write = grad_erase.add_(grad_write), None
    grad_log_keep = None
    if outs[3] is not None:
        grad_log_keep = log_keep_grad(chunk_backward.decay_terms, visible_writes, outs[3])
    qkv_grads = (chunk_backward.grad_q, chunk_backward.grad_k, chunk_backward.grad_v)
    for out, grad in zip(outs, (*qkv_grads, grad_log_keep, grad_erase, grad_write), strict=True):
        assert (out is None) == (grad is None)
        if out is not None and grad is not None:
            out.copy_(grad)


@scan_op.register_fake
def _fake_scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_keep: OptionalTensor,
    erase: OptionalTensor,
    write: OptionalTensor,
    state: OptionalTensor,
    doc_start: OptionalTensor,
    hold: int,
    chunk_size: int,
    tied_gates: bool,
    needs_grad: bool,
) -> tuple[Tensor, ...]:
    chunk_layout = ChunkLayout.from_shapes(q.shape, k.shape, hold, chunk_size)
    return tuple(q.new_empty(shape) for shape in output_shapes(q, k, v, erase, chunk_layout, needs_grad))


@scan_backward_op.register_fake
def _fake_scan_backward(
    grad_reads: OptionalTensor,
    grad_last_state: OptionalTensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_keep: OptionalTensor,
    erase: OptionalTensor,
    write: OptionalTensor,
    doc_start: OptionalTensor,
    states: Tensor,
    recalled_values: Tensor,
    inverses: Tensor,
    hold: int,
    chunk_size: int,
    tied_gates: bool,
    starts_empty: bool,
) -> tuple[Tensor, ...]:
    return _empty_grads(q, k, v, log_keep, erase, write, states, starts_empty)


def setup_context(ctx: AutogradContext, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, k, v, log_keep, erase, write, state, doc_start, hold, chunk_size, tied_gates, _ = inputs
    ctx.save_for_backward(q, k, v, log_keep, erase, write, doc_start, *output[2:])
    ctx.constants = (hold, chunk_size, tied_gates, state is None)
    ctx.set_materialize_grads(False)


def backward(
    ctx: AutogradContext, grad_reads: OptionalTensor, grad_last_state: OptionalTensor, *_: Any
) -> tuple[OptionalTensor, ...]:
    grads = scan_backward_op(grad_reads, grad_last_state, *ctx.saved_tensors, *ctx.constants)
    is_needed = zip(grads, ctx.needs_input_grad[:7], strict=True)
    return (*(grad if needed else None for grad, needed in is_needed), *[None] * 5)


scan_op.register_autograd(backward, setup_context=setup_context)
