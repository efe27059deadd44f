"""Cut a sequence into chunks that are each solved at once and that read no state from the middle of another chunk.

Without `hold` the chunks are as even as possible.  With `hold`, a chunk consists of whole hold blocks.  A hold block
longer than a chunk is cut into chunks of its own, all of which read the state from before the first of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, overload

import torch
from torch import Tensor


class ChunkSpan(NamedTuple):
    """The tokens of one chunk, and what they read."""

    start: int  # first token
    stop: int  # one past the last token
    state_from: int  # index of the chunk whose initial state is read
    intra_chunk: bool  # whether tokens also read writes of their own chunk


@dataclass(frozen=True)
class ChunkLayout:
    """Chunks of a sequence of tokens with `writes` writes each; a chunk has at most `chunk_size` writes."""

    tokens: int
    writes: int
    hold: int | None
    chunk_size: int

    @classmethod
    def from_shapes(cls, q_shape: Sequence[int], k_shape: Sequence[int], hold: int, chunk_size: int) -> "ChunkLayout":
        """Make a layout from the shapes of q [B, H, T, K] and k [B, H, T * writes, K].  hold = 0 means no hold."""
        return cls(q_shape[2], k_shape[2] // q_shape[2], hold or None, chunk_size)

    @property
    def tokens_per_chunk(self) -> int:
        """Maximum number of tokens of a chunk."""
        return max(self.chunk_size // self.writes, 1)

    @property
    def chunk_count_and_width(self) -> tuple[int, int]:
        """Number of chunks, and the writes of the largest.

        Without `hold` this is arithmetic only, since torch.compile may trace it with symbolic lengths.
        """
        if self.hold is not None:
            return len(self.chunk_spans), max(self.chunk_tokens) * self.writes
        size = even_span_size(self.tokens, 1, self.tokens_per_chunk)
        return -(-self.tokens // size), size * self.writes

    @cached_property
    def chunk_spans(self) -> list[ChunkSpan]:
        if self.hold is None or self.hold <= self.tokens_per_chunk:
            spans = even_spans(self.tokens, self.hold or 1, self.tokens_per_chunk)
            return [ChunkSpan(*span, index, True) for index, span in enumerate(spans)]
        chunk_spans: list[ChunkSpan] = []
        for block_start in range(0, self.tokens, self.hold):
            first_chunk = len(chunk_spans)
            spans = even_spans(min(self.hold, self.tokens - block_start), 1, self.tokens_per_chunk)
            chunk_spans += [
                ChunkSpan(block_start + start, block_start + stop, first_chunk, False) for start, stop in spans
            ]
        return chunk_spans

    @cached_property
    def chunk_tokens(self) -> list[int]:
        """Number of tokens of each chunk."""
        return [span.stop - span.start for span in self.chunk_spans]

    @overload
    def split_chunks(self, x: Tensor, per_token: int = 1) -> list[Tensor]: ...

    @overload
    def split_chunks(self, x: None, per_token: int = 1) -> list[None]: ...

    @overload
    def split_chunks(self, x: Tensor | None, per_token: int = 1) -> list[Tensor] | list[None]: ...

    def split_chunks(self, x: Tensor | None, per_token: int = 1) -> list[Tensor] | list[None]:
        """Split [R, T * per_token, ..] into its chunks.  None gives a list of None."""
        if x is None:
            return [None] * len(self.chunk_spans)
        return list(x.split([size * per_token for size in self.chunk_tokens], 1))

    def first_token(self) -> Tensor:
        """Return for each token the first token of its chunk.  [T]."""
        return torch.tensor([span.start for span in self.chunk_spans]).repeat_interleave(
            torch.tensor(self.chunk_tokens)
        )

    def last_token(self) -> Tensor:
        """Return for each token the last token of its chunk.  [T]."""
        return torch.tensor([span.stop - 1 for span in self.chunk_spans]).repeat_interleave(
            torch.tensor(self.chunk_tokens)
        )

    def visible_writes(self) -> Tensor | None:
        """Return for each token how many writes of its chunk it sees [T].

        None means that each token has one write and sees those up to its own.
        """
        if self.hold is None and self.writes == 1:
            return None
        token_in_chunk = torch.arange(self.tokens) - self.first_token()
        visible_tokens = token_in_chunk + 1 if self.hold is None else token_in_chunk // self.hold * self.hold
        return visible_tokens * self.writes


def even_spans(tokens: int, step: int, max_size: int) -> list[tuple[int, int]]:
    """Cut tokens into spans of equal length, a multiple of `step` and at most `max_size`; the last may be shorter."""
    size = even_span_size(tokens, step, max_size)
    return [(start, min(start + size, tokens)) for start in range(0, tokens, size)]


def even_span_size(tokens: int, step: int, max_size: int) -> int:
    """Return the length of the spans of `even_spans`."""
    count = -(-tokens // (max_size // step * step))
    return -(-tokens // (count * step)) * step
