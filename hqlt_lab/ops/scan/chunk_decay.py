"""Decay factors within a chunk, from keep gates, document borders and hold blocks.

With g_i the sum of the chunk's log-keeps up to write i, and r_i that sum over the writes that token i sees,

    write_to_write[i, j]  = e^{g_i - g_j}    decay of write j until write i looks it up       for j <= i; else arbitrary
    write_to_read[i, j]   = e^{r_i - g_j}    decay of write j until token i reads             for writes that i sees
    state_to_write[i]     = e^{g_i}          decay of the initial state until write i looks it up
    state_to_read[i]      = e^{r_i}          decay of the initial state until token i reads
    write_to_end[j]       = e^{g_L - g_j}    decay of write j until the end of the chunk
    state_to_end          = e^{g_L}          decay of the initial state until the end of the chunk

and 0 across document borders.  None stands for ones.

Log-keeps are summed in float64.  For float32 matrices each sum is split into two float32 numbers, so that differences
are accurate without float64 matrices, however small the keeps are.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.ops.scan.chunk_layout import ChunkLayout
from hqlt_lab.ops.scan.deterministic_cumsum import deterministic_cumsum

MIN_LOG_KEEP = -1e4  # a keep of exactly 0 would give -inf, and the difference of two of them nan


class ChunkDecay(NamedTuple):
    """The factors of one chunk with C tokens and L writes, for R rows."""

    write_to_write: Tensor | None = None  # [R, L, L]
    write_to_read: Tensor | None = None  # [R or 1, C, L]
    state_to_write: Tensor | None = None  # [R, L, 1]
    state_to_read: Tensor | None = None  # [R, C, 1]
    write_to_end: Tensor | None = None  # [R, L, 1]
    state_to_end: Tensor | None = None  # [R, 1, 1]


class DecayVectors(NamedTuple):
    """The vectors from which the factors of all chunks are computed: per write [R, T * writes] or per token [R, T]."""

    log_decay: list[Tensor] | None = None  # g, per write, as terms that add up to it
    read_log_decay: list[Tensor] | None = None  # r, per token, as terms that add up to it
    write_document: Tensor | None = None  # number of the document in its chunk; 0: began before the chunk
    token_document: Tensor | None = None
    state_to_write: Tensor | None = None
    state_to_read: Tensor | None = None
    write_to_end: Tensor | None = None
    state_to_end: Tensor | None = None  # per write, but constant within a chunk

    def split_chunks(self, rows: slice, chunk_layout: ChunkLayout) -> "list[DecayVectors]":
        """Return the vectors of these rows, chunk by chunk."""
        writes = chunk_layout.writes
        elements_per_token = (writes, 1, writes, 1, writes, 1, writes, writes)  # of each field
        fields: list[Any] = []
        for field, per_token in zip(self, elements_per_token, strict=True):
            if isinstance(field, list):
                terms = (chunk_layout.split_chunks(term[rows], per_token) for term in field)
                fields.append(zip(*terms, strict=True))
            else:
                fields.append(chunk_layout.split_chunks(None if field is None else field[rows], per_token))
        return [DecayVectors(*chunk) for chunk in zip(*fields, strict=True)]


def make_decay_vectors(
    log_keep: Tensor | None, doc_start: Tensor | None, chunk_layout: ChunkLayout, dtype: torch.dtype
) -> DecayVectors | None:
    """Compute the vectors from log_keep [R, T * writes] and doc_start [R, T].  None if there is neither."""
    if log_keep is None and doc_start is None:
        return None
    vectors = DecayVectors()
    if log_keep is not None:
        vectors = compute_log_decay(log_keep, chunk_layout, dtype)
    return vectors if doc_start is None else mask_documents(vectors, doc_start, chunk_layout, dtype)


def compute_log_decay(log_keep: Tensor, chunk_layout: ChunkLayout, dtype: torch.dtype) -> DecayVectors:
    """Compute the vectors of the keep gates, without document borders."""
    total = F.pad(deterministic_cumsum(log_keep.double().clamp(min=MIN_LOG_KEEP), 1), (1, 0))  # [R, 1 + T * writes]
    first_write = chunk_layout.first_token() * chunk_layout.writes
    end_write = (chunk_layout.last_token() + 1) * chunk_layout.writes
    chunk_base = total[:, first_write]  # [R, T]
    log_decay = total[:, 1:] - chunk_base.repeat_interleave(chunk_layout.writes, 1)
    visible_writes = chunk_layout.visible_writes()
    read_log_decay = log_decay if visible_writes is None else total[:, first_write + visible_writes] - chunk_base
    chunk_log_decay = (total[:, end_write] - chunk_base).repeat_interleave(chunk_layout.writes, 1)
    exponents = (log_decay, read_log_decay, chunk_log_decay - log_decay, chunk_log_decay)
    state_to_write, state_to_read, write_to_end, state_to_end = (g.exp().to(dtype) for g in exponents)
    return DecayVectors(
        log_decay=split_precision(log_decay, dtype),
        read_log_decay=split_precision(read_log_decay, dtype),
        state_to_write=state_to_write,
        state_to_read=state_to_read,
        write_to_end=write_to_end,
        state_to_end=state_to_end,
    )


def mask_documents(
    vectors: DecayVectors, doc_start: Tensor, chunk_layout: ChunkLayout, dtype: torch.dtype
) -> DecayVectors:
    """Add the document numbers, and set factors across document borders to 0."""
    total = F.pad(doc_start.long().cumsum(1), (1, 0))
    chunk_base = total[:, chunk_layout.first_token()]
    token_document = total[:, 1:] - chunk_base
    last_token_document = total[:, chunk_layout.last_token() + 1] - chunk_base
    write_document, last_document = (
        x.repeat_interleave(chunk_layout.writes, 1) for x in (token_document, last_token_document)
    )
    return vectors._replace(
        write_document=write_document,
        token_document=token_document,
        state_to_write=mask_factor(write_document == 0, vectors.state_to_write, dtype),
        state_to_read=mask_factor(token_document == 0, vectors.state_to_read, dtype),
        write_to_end=mask_factor(write_document == last_document, vectors.write_to_end, dtype),
        state_to_end=mask_factor(last_document == 0, vectors.state_to_end, dtype),
    )


def make_chunk_decay(vectors: DecayVectors, visible_writes: Tensor | None, dtype: torch.dtype) -> ChunkDecay:
    """Compute the factors of one chunk from its vectors and the number of writes that each token sees [C]."""
    same_document = same_document_mask(vectors.write_document, vectors.write_document)
    write_to_write = decay_matrix(vectors.log_decay, vectors.log_decay, same_document, dtype)
    write_to_read = write_to_write
    if visible_writes is not None and vectors.write_to_end is not None:
        visible = visibility_mask(visible_writes, vectors.write_to_end.shape[1])
        same_document = same_document_mask(vectors.token_document, vectors.write_document)
        visible = visible if same_document is None else visible & same_document
        write_to_read = decay_matrix(vectors.read_log_decay, vectors.log_decay, visible, dtype)
    state_to_write, state_to_read, write_to_end, state_to_end = (
        None if factor is None else factor[..., None]
        for factor in (vectors.state_to_write, vectors.state_to_read, vectors.write_to_end, vectors.state_to_end)
    )
    return ChunkDecay(
        write_to_write,
        write_to_read,
        state_to_write,
        state_to_read,
        write_to_end,
        None if state_to_end is None else state_to_end[:, :1],
    )


def visibility_mask(visible_writes: Tensor, length: int) -> Tensor:
    """Return [C, L]: True for the writes that each token sees."""
    return torch.arange(length, device=visible_writes.device) < visible_writes[:, None]


def same_document_mask(reader_document: Tensor | None, writer_document: Tensor | None) -> Tensor | None:
    """Return [R, readers, writers]: True where both belong to the same document.  None without documents."""
    return (
        None
        if reader_document is None or writer_document is None
        else reader_document[:, :, None] == writer_document[:, None, :]
    )


def decay_matrix(
    read_log_decay: list[Tensor] | None, log_decay: list[Tensor] | None, visible: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """Return e^{r_i - g_j} where write j is visible to reader i, else 0.  [R, n, L]."""
    if read_log_decay is None or log_decay is None:
        assert visible is not None
        return visible.to(dtype)
    difference = read_log_decay[0][:, :, None] - log_decay[0][:, None, :]
    for read_term, write_term in zip(read_log_decay[1:], log_decay[1:], strict=True):
        difference.add_(read_term[:, :, None]).sub_(write_term[:, None, :])
    decay = difference.clamp_(max=0.0).exp_()  # writes after the read, which are masked, could overflow
    return decay if visible is None else decay.mul_(visible)


def split_precision(value: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """Split a float64 tensor into tensors of the given dtype that add up to it."""
    first = value.to(dtype)
    return [first] if dtype == value.dtype else [first, (value - first).to(dtype)]


def mask_factor(continues: Tensor, factor: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return the factor (None: 1) where the document continues, and 0 elsewhere."""
    return continues.to(dtype) if factor is None else factor * continues


class DecayTerms(NamedTuple):
    """Terms of the gradient by the log-keeps of a chunk: one per pair of a stored value and its use.

    A term is the decayed product times its gradient.  None: there are no such pairs.
    """

    write_to_write: Tensor | None = None  # [R, L, L] stored by write j (column), looked up by write i (row)
    write_to_read: Tensor | None = None  # [R, C, L] stored by write j (column), read by token i (row)
    state_to_write: Tensor | None = None  # [R, L]
    state_to_read: Tensor | None = None  # [R, C]
    write_to_end: Tensor | None = None  # [R, L]
    state_to_end: Tensor | None = None  # [R]


def log_keep_grad(terms: DecayTerms, visible_writes: Tensor | None, like: Tensor) -> Tensor:
    """Return the gradient by the log-keeps [R, L], in the shape and dtype of `like`.

    The log-keep of write i gets the terms of all pairs that it lies between: stored before write i, or in the initial
    state, and used at write i or later.  `visible_writes` [C] is how many writes of the chunk each token sees (None:
    those up to its own).
    """
    length = like.shape[1]
    later = like.new_ones(length, length).triu(1)  # [j, i]: write i comes after write j
    until = like.new_ones(length, length).tril()  # [x, i]: write i is x or comes before it
    uses = [(terms.write_to_write, terms.state_to_write, until)]
    if visible_writes is not None:
        visible = visibility_mask(visible_writes, length).to(like.dtype)
        uses.append((terms.write_to_read, terms.state_to_read, visible))
    elif terms.write_to_read is not None:  # token x reads after write x, so the terms of both are added first
        states = add_optional(terms.state_to_read, terms.state_to_write)
        uses = [(add_optional(terms.write_to_read, terms.write_to_write), states, until)]
    grad = torch.zeros_like(like)
    for pairs, states, until_use in uses:
        states = None if states is None else states[:, :, None]
        sums = add_optional(None if pairs is None else pairs @ later, states)  # [R, uses, L]
        if sums is not None:
            grad += (sums * until_use).sum(1)
    if terms.write_to_end is not None:
        grad += F.pad(deterministic_cumsum(terms.write_to_end, 1)[:, :-1], (1, 0))
    return grad if terms.state_to_end is None else grad.add_(terms.state_to_end[:, None])


def add_optional(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """Return the sum of the tensors that are not None."""
    if a is None or b is None:
        return b if a is None else a
    return a + b
