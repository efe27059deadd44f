"""The chunk-parallel scan and its backward, each one operator to torch.

torch.compile would unroll the loop over chunks otherwise.  Only `backward` knows it: for a second derivative, and for
torch.func, there is `recurrent`.

Kept for backwards, per token and head: what was recalled (V numbers), the solved system (a chunk) and the state before
each chunk (K V / chunk).  All else is computed again, so memory is linear in the text: with 64 channels and chunks of
64 as much as q, k and v take.
"""

from typing import Any

import torch
from torch import Tensor

from hqlt_lab.ops.chunk import Buffers, Solved, carry, read, solve
from hqlt_lab.ops.chunk_backward import Backward, States
from hqlt_lab.ops.fading import to_log_keeps
from hqlt_lab.ops.pieces import Cuts
from hqlt_lab.ops.steps import Maybe
from hqlt_lab.ops.text import Rows, Text


@torch.library.custom_op("hqlt::scan", mutates_args=())
def scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_keep: Maybe,
    erase: Maybe,
    write: Maybe,
    state: Maybe,
    starts: Maybe,
    hold: int,
    chunk: int,
    one: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Reads, the last state, and what backwards needs: the states, what was recalled, the inverses."""
    text = Text(q, k, v, (log_keep, erase, write), starts, one, Cuts.of(q.shape, k.shape, hold, chunk))
    shapes = outputs(q, k, v, erase, text.cuts, keep)
    reads, _, _, recalled, inverses = made = [text.q.new_empty(shape) for shape in shapes]
    states = text.q.new_empty(len(text.cuts.pieces) + 1, len(text.q), k.shape[3], v.shape[3])
    states[0] = 0.0 if state is None else state.flatten(0, 1)
    kept = (recalled, inverses) if keep and erase is not None else None
    for rows in text.groups():
        forward(rows, states, state is None, reads.flatten(0, 1), kept)
    made[1] = states[-1].unflatten(0, q.shape[:2]).clone()
    made[2] = states if keep else made[2]
    return tuple(made)  # type: ignore[return-value]


def forward(rows: Rows, states: Tensor, empty: bool, reads: Tensor, kept: tuple[Tensor, Tensor] | None) -> None:
    """Chunk after chunk of some rows, into `reads`, `states` and what is `kept`."""
    buffers, outs = Buffers(), rows.split(reads, 1)
    recalled, inverses = (rows.split(x) for x in (kept or (None, None)))
    all_states = states[:, rows.rows].unbind(0)
    for number, piece in enumerate(rows.cuts.pieces):
        part = rows.chunk(number)
        before = None if empty and number == 0 else all_states[number]
        held = None if empty and piece.opened_by == 0 else all_states[piece.opened_by]
        new, solved = solve(part, before, buffers)
        outs[number].copy_(read(part, held, new, buffers))  # type: ignore[union-attr]
        carry(part, before, new, buffers, out=all_states[number + 1])
        if kept is not None and solved is not None:
            recalled[number].copy_(solved.recalled)  # type: ignore[union-attr]
            inverses[number][..., : new.shape[1]].copy_(solved.inverse)  # type: ignore[index]
            inverses[number][..., new.shape[1] :] = 0.0  # type: ignore[index]  # what is given out is defined


@torch.library.custom_op("hqlt::scan_backward", mutates_args=())
def scan_backward(
    by_reads: Maybe,
    by_last: Maybe,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_keep: Maybe,
    erase: Maybe,
    write: Maybe,
    starts: Maybe,
    states: Tensor,
    recalled: Tensor,
    inverses: Tensor,
    hold: int,
    chunk: int,
    one: bool,
    empty: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v, the three gates and the first state; an empty tensor where there is no such input."""
    text = Text(q, k, v, (log_keep, erase, write), starts, one, Cuts.of(q.shape, k.shape, hold, chunk))
    inputs = (q, k, v, log_keep, erase, write, None if empty else states[0].unflatten(0, q.shape[:2]))
    grads = tuple(q.new_empty(0 if x is None else x.shape) for x in inputs)
    if by_reads is None:
        by_reads = q.new_zeros(*q.shape[:3], v.shape[3])
    into = [None if x is None else grad.flatten(0, 1) for x, grad in zip(inputs, grads, strict=True)]
    last = None if by_last is None else by_last.flatten(0, 1)
    for rows in text.groups():
        backward(rows, states, (recalled, inverses), by_reads.flatten(0, 1), last, into)
    return grads  # type: ignore[return-value]


def backward(
    rows: Rows, states: Tensor, kept: tuple[Tensor, Tensor], by_reads: Tensor, by_last: Tensor | None, into: list[Maybe]
) -> None:
    """Chunk before chunk of some rows, into the gradients."""
    buffers, outs = Buffers(), [rows.split(x, 1 if i == 0 else None) for i, x in enumerate(into[:6])]
    given, erasing, empty = rows.split(by_reads, 1), rows.text.erase is not None, into[6] is None
    recalled, inverses = (rows.split(x if erasing else None) for x in kept)
    all_states = states[:, rows.rows].unbind(0)
    by_state, by_held = None if by_last is None else by_last[rows.rows].clone(), None
    for number, piece in reversed(list(enumerate(rows.cuts.pieces))):
        part = rows.chunk(number)
        solved = Solved(recalled[number], inverses[number][..., : part.k.shape[1]]) if erasing else None  # type: ignore[arg-type, index]
        before = None if empty and number == 0 else all_states[number]
        held = None if empty and piece.opened_by == 0 else all_states[piece.opened_by]
        around = States(before, all_states[number + 1], held)
        found = Backward(part, solved, around, rows.text.log_keep is not None, buffers)
        by_state, more = found.run(given[number], by_state)  # type: ignore[arg-type]
        if more is not None:
            by_held = more if piece.inside else more.clone() if by_held is None else by_held.add_(more)
        if by_held is not None and piece.opened_by == number:
            by_state, by_held = by_state.add_(by_held), None  # type: ignore[union-attr]
        store(found, [out[number] for out in outs], rows.seen(number), rows.text.one)
    if into[6] is not None and by_state is not None:
        into[6][rows.rows] = by_state


def store(found: Backward, outs: list[Maybe], seen: Tensor | None, one: bool) -> None:
    """One chunk's gradients to where they belong."""
    by_erase, by_write = found.by_erase, found.by_write
    if one and by_erase is not None and by_write is not None:
        by_erase, by_write = by_erase.add_(by_write), None
    by_keep = None if found.fade is None else to_log_keeps(*found.fade, seen)
    for out, grad in zip(outs, (found.by_q, found.by_k, found.by_v, by_keep, by_erase, by_write), strict=True):
        assert (out is None) == (grad is None)
        if out is not None and grad is not None:
            out.copy_(grad)


def outputs(q: Tensor, k: Tensor, v: Tensor, erase: Maybe, cuts: Cuts, keep: bool) -> list[tuple[int, ...]]:
    """The shapes of what `scan` gives."""
    (batch, heads), rows, values = q.shape[:2], q.shape[0] * q.shape[1], v.shape[3]
    count, widest = cuts.extent
    kept = keep and erase is not None
    return [
        (batch, heads, q.shape[2], values),
        (batch, heads, k.shape[3], values),
        (count + 1, rows, k.shape[3], values) if keep else (0,),
        (rows, k.shape[2], values) if kept else (0,),
        (rows, k.shape[2], widest) if kept else (0,),
    ]


@scan.register_fake
def _(q, k, v, log_keep, erase, write, state, starts, hold, chunk, one, keep):  # type: ignore[no-untyped-def]
    return tuple(q.new_empty(shape) for shape in outputs(q, k, v, erase, Cuts.of(q.shape, k.shape, hold, chunk), keep))


@scan_backward.register_fake
def _(by_reads, by_last, q, k, v, log_keep, erase, write, starts, states, recalled, inverses, hold, chunk, one, empty):  # type: ignore[no-untyped-def]
    first = None if empty else (*q.shape[:2], *states.shape[2:])
    gates = (None if gate is None else gate.shape for gate in (log_keep, erase, write))
    return tuple(q.new_empty(shape or 0) for shape in (q.shape, k.shape, v.shape, *gates, first))


def remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, k, v, log_keep, erase, write, state, starts, hold, chunk, one, _ = inputs
    ctx.save_for_backward(q, k, v, log_keep, erase, write, starts, *output[2:])
    ctx.rest = (hold, chunk, one, state is None)
    ctx.set_materialize_grads(False)


def differentiate(ctx: Any, by_reads: Maybe, by_last: Maybe, *_: Any) -> tuple[Maybe, ...]:
    grads = scan_backward(by_reads, by_last, *ctx.saved_tensors, *ctx.rest)
    wanted = zip(grads, ctx.needs_input_grad[:7], strict=True)
    return (*(grad if want else None for grad, want in wanted), *[None] * 5)


scan.register_autograd(differentiate, setup_context=remember)
