"""The fast way to a linear memory: parallel inside a chunk, recurrent between chunks.

The text is cut into chunks (`pieces`); each is a few products of small matrices (`chunk`), from whose state the next
goes on.  Rows go through in groups that fit a processor's cache together.  Kept for backwards, per token and head:
the state before each chunk (K V / chunk numbers), what was recalled (V) and the solved system (chunk); all else is
computed again.  So memory is linear in the text, about twice that of q, k and v.

The whole scan is one operator to torch.compile, which would unroll the loop over chunks otherwise, and to
`torch.utils.flop_counter`.  It has no second derivative; `recurrent` has.

Yang et al. 2024, arXiv:2406.06484 (delta rule); arXiv:2412.06464 (with keeps).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hqlt_lab.ops import chunk as of_chunk
from hqlt_lab.ops.chunk import Buffers, Chunk, Solved
from hqlt_lab.ops.fading import fading, to_log_keeps
from hqlt_lab.ops.pieces import Piece, cut, seen_before
from hqlt_lab.ops.recurrent import recurrent
from hqlt_lab.ops.steps import PLAIN, Course, Gates, each, no_autocast, precise

CHUNK = 64  # writes that are solved together
CACHED = 2**16  # numbers of a matrix in the cache: rows times writes times channels


def chunked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gates: Gates,
    state: Tensor | None = None,
    course: Course = PLAIN,
    *,
    chunk: int = CHUNK,
) -> tuple[Tensor, Tensor]:
    """What `recurrent` does with `linear_step`, values and gradients; the arguments are the same."""
    hold, real, starts = course
    if q.shape[2] == 1:  # one token has nothing to be parallel in
        return recurrent(q, k, v, gates, state, course)
    with no_autocast(q):
        dtype, writes = q.dtype, k.shape[2] // q.shape[2]
        one = gates.write is gates.erase
        q, k, v, gates = precise(q), precise(k), precise(v), each(precise, gates)
        k, gates = neutral_where_unreal(k, gates, real, writes)
        if one:
            gates = gates._replace(write=None)
        inputs = (q, k, v, *gates, state)
        keep = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
        reads, last, *_ = scan_op(*inputs, starts, hold or 0, chunk, one, keep)
        return reads.to(dtype), last


def neutral_where_unreal(k: Tensor, gates: Gates, real: Tensor | None, writes: int) -> tuple[Tensor, Gates]:
    """A zero key with nothing fading is a step that never was."""
    if real is None:
        return k, gates
    real = real.repeat_interleave(writes, 1)[:, None]  # [B, 1, T * writes]
    log_keep = None if gates.log_keep is None else gates.log_keep.masked_fill(~real, 0.0)
    return k * real[..., None], gates._replace(log_keep=log_keep)


class Text(NamedTuple):
    """All that goes through the memory, B * H rows of it, and how it is cut."""

    q: Tensor  # [R, T, K]
    k: Tensor  # [R, T * writes, K]
    v: Tensor  # [R, T * writes, V]
    log_keep: Tensor | None  # [R, T * writes]
    erase: Tensor | None
    write: Tensor | None
    starts: Tensor | None  # [R, T]
    hold: int | None
    chunk: int
    one: bool  # whether what erases also writes

    @classmethod
    def of(
        cls,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        gates: tuple[Tensor | None, ...],
        starts: Tensor | None,
        hold: int,
        chunk: int,
        one: bool,
    ) -> "Text":
        flat = [None if x is None else x.flatten(0, 1) for x in (q, k, v, *gates)]
        starts = None if starts is None else starts.repeat_interleave(q.shape[1], 0)
        return cls(*flat, starts, hold or None, chunk, one)  # type: ignore[arg-type]

    @property
    def writes(self) -> int:
        return self.k.shape[1] // self.q.shape[1]

    @property
    def pieces(self) -> list[Piece]:
        return cut(self.q.shape[1], self.hold, max(self.chunk // self.writes, 1))

    def groups(self) -> Iterator[slice]:
        """Rows that are in the cache together; on other devices than a CPU, all of them."""
        rows = len(self.q)
        size = self.chunk * max(self.k.shape[2], self.v.shape[2])
        step = rows if self.q.device.type != "cpu" else max(CACHED // size, 2)
        return (slice(start, min(start + step, rows)) for start in range(0, rows, step))

    def part(self, rows: slice, piece: Piece) -> Chunk:
        """One chunk of these rows."""
        tokens, writes = slice(piece.start, piece.stop), self.span(piece)
        k, document = self.k[rows, writes], None
        log_keep = None if self.log_keep is None else self.log_keep[rows, writes]
        if self.starts is not None:
            document = self.starts[rows, tokens].long().cumsum(1)
        before = seen_before(piece, self.hold, self.writes, k.device)
        factors = fading(log_keep, document, before, k, piece.stop - piece.start)
        if not piece.inside:
            factors = factors._replace(to_read=self.begun(rows, piece))
        erase = None if self.erase is None else self.erase[rows, writes, None]
        write = erase if self.one else None if self.write is None else self.write[rows, writes, None]
        return Chunk(self.q[rows, tokens], k, self.v[rows, writes], erase, write, factors, piece.inside)

    def begun(self, rows: slice, piece: Piece) -> Tensor | None:
        """0 where a document begins with the stretch of this piece, whose state is then not read."""
        if self.starts is None:
            return None
        first = self.pieces[piece.opened_by].start
        return (~self.starts[rows, first]).to(self.q.dtype)[:, None, None]

    def span(self, piece: Piece) -> slice:
        return slice(piece.start * self.writes, piece.stop * self.writes)


@torch.library.custom_op("hqlt::chunked_scan", mutates_args=())
def scan_op(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_keep: Tensor | None,
    erase: Tensor | None,
    write: Tensor | None,
    state: Tensor | None,
    starts: Tensor | None,
    hold: int,
    chunk: int,
    one: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Reads, the last state, and what backwards needs: states, what was recalled, inverses."""
    text = Text.of(q, k, v, (log_keep, erase, write), starts, hold, chunk, one)
    pieces, values = text.pieces, v.shape[3]
    reads = text.v.new_empty(*text.q.shape[:2], values)
    states = text.k.new_empty(len(pieces) + 1, len(text.q), k.shape[3], values)
    states[0] = 0.0 if state is None else state.flatten(0, 1)
    kept = keep and erase is not None
    recalled = text.v.new_empty(text.v.shape if kept else 0)
    widest = max(piece.stop - piece.start for piece in pieces) * text.writes
    inverses = text.v.new_empty((*text.k.shape[:2], widest) if kept else 0)
    for rows in text.groups():
        buffers = Buffers()
        for number, piece in enumerate(pieces):
            part = text.part(rows, piece)
            nothing = state is None and number == 0
            before, held = None if nothing else states[number, rows], states[piece.opened_by, rows]
            new, solved = of_chunk.solve(part, before, buffers)
            if kept and solved is not None:
                span = text.span(piece)
                recalled[rows, span] = solved.recalled
                inverses[rows, span, : new.shape[1]] = solved.inverse
            empty = state is None and piece.opened_by == 0
            reads[rows, piece.start : piece.stop] = of_chunk.read(part, None if empty else held, new, buffers)
            of_chunk.carry(part, before, new, buffers, out=states[number + 1, rows])
    shape = q.shape[:2]
    last = states[-1].clone() if keep else states[-1]
    return (
        reads.unflatten(0, shape),
        last.unflatten(0, shape),
        states if keep else states[:0].clone(),
        recalled,
        inverses,
    )


@torch.library.custom_op("hqlt::chunked_scan_backward", mutates_args=())
def backward_op(
    by_reads: Tensor | None,
    by_last: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_keep: Tensor | None,
    erase: Tensor | None,
    write: Tensor | None,
    starts: Tensor | None,
    states: Tensor,
    recalled: Tensor,
    inverses: Tensor,
    hold: int,
    chunk: int,
    one: bool,
    from_state: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v, the three gates and the first state; an empty tensor where there is none."""
    text = Text.of(q, k, v, (log_keep, erase, write), starts, hold, chunk, one)
    pieces = text.pieces
    by_q, by_k, by_v = (torch.empty_like(x) for x in (text.q, text.k, text.v))
    by_gates = [
        text.q.new_empty(0) if gate is None else torch.empty_like(gate)
        for gate in (text.log_keep, text.erase, text.write)
    ]
    by_first = torch.zeros_like(states[0]) if from_state else text.q.new_empty(0)
    by_reads = v.new_zeros(*q.shape[:3], v.shape[3]) if by_reads is None else by_reads
    by_reads = by_reads.flatten(0, 1)
    for rows in text.groups():
        buffers = Buffers()
        by_state = None if by_last is None else by_last.flatten(0, 1)[rows].clone()
        by_held = None
        for number, piece in reversed(list(enumerate(pieces))):
            part, span, tokens = text.part(rows, piece), text.span(piece), slice(piece.start, piece.stop)
            before = states[number, rows] if from_state or number > 0 else None
            held = states[piece.opened_by, rows] if from_state or piece.opened_by > 0 else None
            length = part.k.shape[1]
            solved = None if erase is None else Solved(recalled[rows, span], inverses[rows, span, :length])
            grads, by_state, more = of_chunk.backward(
                part, solved, before, held, by_reads[rows, tokens], by_state, buffers
            )
            if more is not None:
                by_held = more.clone() if by_held is None else by_held.add_(more)
            if piece.opened_by == number and by_held is not None:
                assert by_state is not None
                by_state, by_held = by_state.add_(by_held), None
            by_q[rows, tokens], by_k[rows, span], by_v[rows, span] = grads.q, grads.k, grads.v
            if grads.fade is not None:
                before_each = seen_before(piece, text.hold, text.writes, q.device)
                by_gates[0][rows, span] = to_log_keeps(*grads.fade, before_each)
            if grads.erase is not None:
                both = grads.erase + grads.write if one and grads.write is not None else grads.erase
                by_gates[1][rows, span] = both
            if grads.write is not None and not one:
                by_gates[2][rows, span] = grads.write
        if from_state and by_state is not None:
            by_first[rows] = by_state
    shape = q.shape[:2]
    return tuple(x.unflatten(0, shape) if len(x) else x for x in (by_q, by_k, by_v, *by_gates, by_first))  # type: ignore[return-value]


@scan_op.register_fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_keep: Any,
    erase: Any,
    write: Any,
    state: Any,
    starts: Any,
    hold: int,
    chunk: int,
    one: bool,
    keep: bool,
) -> tuple[Tensor, ...]:
    rows, (keys, values) = q.shape[0] * q.shape[1], (k.shape[3], v.shape[3])
    writes = k.shape[2] // q.shape[2]
    pieces = cut(q.shape[2], hold or None, max(chunk // writes, 1))
    widest = max(piece.stop - piece.start for piece in pieces) * writes
    kept = keep and erase is not None
    return (
        q.new_empty(*q.shape[:3], values),
        q.new_empty(*q.shape[:2], keys, values),
        q.new_empty(len(pieces) + 1 if keep else 0, rows, keys, values),
        q.new_empty((rows, k.shape[2], values) if kept else 0),
        q.new_empty((rows, k.shape[2], widest) if kept else 0),
    )


@backward_op.register_fake
def _(
    by_reads: Any,
    by_last: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_keep: Any,
    erase: Any,
    write: Any,
    starts: Any,
    states: Tensor,
    recalled: Tensor,
    inverses: Tensor,
    hold: int,
    chunk: int,
    one: bool,
    from_state: bool,
) -> tuple[Tensor, ...]:
    gates = (
        q.new_empty(0) if gate is None else torch.empty_like(gate, memory_format=torch.contiguous_format)
        for gate in (log_keep, erase, write)
    )
    first = q.new_empty(*q.shape[:2], k.shape[3], v.shape[3]) if from_state else q.new_empty(0)
    return (q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), *gates, first)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, k, v, log_keep, erase, write, state, starts, hold, chunk, one, _ = inputs
    ctx.save_for_backward(q, k, v, log_keep, erase, write, starts, *output[2:])
    ctx.numbers = (hold, chunk, one, state is not None)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, by_reads: Tensor | None, by_last: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    given = backward_op(by_reads, by_last, *ctx.saved_tensors, *ctx.numbers)
    wanted = (ctx.needs_input_grad[i] for i in range(7))
    return (*(grad if grad.numel() and want else None for grad, want in zip(given, wanted, strict=True)), *[None] * 5)


scan_op.register_autograd(_backward, setup_context=_remember)
