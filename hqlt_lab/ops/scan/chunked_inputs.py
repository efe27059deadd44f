"""Inputs of the chunk-parallel scan: the rows of all heads, in groups that fit the CPU cache, cut into chunks."""

from collections.abc import Iterator
from functools import cached_property
from typing import overload

from torch import Tensor

from hqlt_lab.ops.gates import OptionalTensor
from hqlt_lab.ops.scan.chunk_decay import (
    ChunkDecay,
    DecayVectors,
    make_chunk_decay,
    make_decay_vectors,
    visibility_mask,
)
from hqlt_lab.ops.scan.chunk_layout import ChunkLayout
from hqlt_lab.ops.scan.scalar_gate_chunk import Chunk

CACHE_ELEMENTS = 2**19  # elements of a working matrix, rows x writes x channels: 2 MB in float32


class ScanInputs:
    """Inputs of a chunk-parallel scan, flattened to R = B * H rows of T tokens."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        gates: tuple[OptionalTensor, OptionalTensor, OptionalTensor],
        doc_start: Tensor | None,
        tied_gates: bool,
        chunk_layout: ChunkLayout,
    ) -> None:
        """Flatten q, k, v, gates [B, H, ..] and doc_start [B, T] to rows.  `tied_gates`: write equals erase."""
        self.q, self.k, self.v = (x.flatten(0, 1) for x in (q, k, v))
        self.log_keep, self.erase, self.write = (None if gate is None else gate.flatten(0, 1) for gate in gates)
        self.doc_start = None if doc_start is None else doc_start.repeat_interleave(q.shape[1], 0)
        self.tied_gates, self.chunk_layout = tied_gates, chunk_layout

    def row_groups(self) -> "Iterator[RowGroup]":
        """Yield groups of rows that fit the CPU cache; on other devices one group of all rows."""
        rows, channels = len(self.q), max(self.k.shape[2], self.v.shape[2])
        group_size = rows
        if self.q.device.type == "cpu":
            group_size = max(CACHE_ELEMENTS // (self.chunk_layout.chunk_count_and_width[1] * channels), 2)
        return (RowGroup(self, slice(start, min(start + group_size, rows))) for start in range(0, rows, group_size))

    @cached_property
    def decay_vectors(self) -> DecayVectors | None:
        return make_decay_vectors(self.log_keep, self.doc_start, self.chunk_layout, self.k.dtype)

    @cached_property
    def visible_writes(self) -> list[Tensor] | list[None]:
        """For each chunk [1, C]: how many writes of the chunk each token sees."""
        visible_writes = self.chunk_layout.visible_writes()
        return self.chunk_layout.split_chunks(
            None if visible_writes is None else visible_writes[None].to(self.q.device)
        )


class RowGroup:
    """Some rows of the inputs, chunk by chunk."""

    def __init__(self, inputs: ScanInputs, rows: slice) -> None:
        self.inputs, self.rows, self.chunk_layout = inputs, rows, inputs.chunk_layout
        self.q = self.split_chunks(inputs.q, 1)
        self.k, self.v = self.split_chunks(inputs.k), self.split_chunks(inputs.v)
        self.erase, self.write = (
            self.split_chunks(None if gate is None else gate[..., None]) for gate in (inputs.erase, inputs.write)
        )
        self.decay_vectors = (
            None if inputs.decay_vectors is None else inputs.decay_vectors.split_chunks(rows, inputs.chunk_layout)
        )

    @overload
    def split_chunks(self, x: Tensor, per_token: int | None = None) -> list[Tensor]: ...

    @overload
    def split_chunks(self, x: None, per_token: int | None = None) -> list[None]: ...

    @overload
    def split_chunks(self, x: Tensor | None, per_token: int | None = None) -> list[Tensor] | list[None]: ...

    def split_chunks(self, x: Tensor | None, per_token: int | None = None) -> list[Tensor] | list[None]:
        """Split these rows of [R, T * writes, ..] into chunks, or with per_token = 1 those of [R, T, ..]."""
        return self.chunk_layout.split_chunks(
            None if x is None else x[self.rows], per_token or self.chunk_layout.writes
        )

    def make_chunk(self, chunk_index: int) -> Chunk:
        k, erase = self.k[chunk_index], self.erase[chunk_index]
        write = erase if self.inputs.tied_gates else self.write[chunk_index]
        intra_chunk = self.chunk_layout.chunk_spans[chunk_index].intra_chunk
        decay = self.chunk_decay(chunk_index, k, intra_chunk)
        return Chunk(self.q[chunk_index], k, self.v[chunk_index], erase, write, decay, intra_chunk)

    def chunk_decay(self, chunk_index: int, k: Tensor, intra_chunk: bool) -> ChunkDecay:
        visible_writes = self.visible_writes(chunk_index)
        if self.decay_vectors is None:
            visible = None if visible_writes is None else visibility_mask(visible_writes, k.shape[1])
            return ChunkDecay(write_to_read=None if visible is None else visible.to(k.dtype)[None])
        decay = make_chunk_decay(self.decay_vectors[chunk_index], visible_writes, k.dtype)
        return decay if intra_chunk else decay._replace(state_to_read=self.continuation_mask(chunk_index))

    def visible_writes(self, chunk_index: int) -> Tensor | None:
        """Return how many writes of the chunk each of its tokens sees [C]; None: those up to its own, one each."""
        visible_writes = self.inputs.visible_writes[chunk_index]
        return None if visible_writes is None else visible_writes[0]

    def continuation_mask(self, chunk_index: int) -> Tensor | None:
        """Return [R, 1, 1]: 0 where the hold block of the chunk starts a document, which must not read the state."""
        if self.inputs.doc_start is None:
            return None
        first_chunk = self.chunk_layout.chunk_spans[chunk_index].state_from
        first_token = self.chunk_layout.chunk_spans[first_chunk].start
        return (~self.inputs.doc_start[self.rows, first_token]).to(self.inputs.q.dtype)[:, None, None]
