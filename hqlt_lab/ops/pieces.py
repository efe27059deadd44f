"""Where the chunks lie: cut so that a chunk can be solved at once and no token reads a state inside another chunk.

Without `hold` the cuts are as even as can be.  With it, a chunk holds whole stretches; a stretch that is longer than a
chunk is cut by itself, and all its pieces read the state before the first of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor


class Piece(NamedTuple):
    """One chunk, and the chunk before which the state stood that it reads; `inside`: it reads its own writes too."""

    start: int  # token
    stop: int
    opened_by: int  # chunk
    inside: bool


@dataclass(frozen=True)
class Cuts:
    """A text of `tokens`, each with so many writes, in chunks of at most `chunk` writes."""

    tokens: int
    writes: int
    hold: int | None
    chunk: int

    @classmethod
    def of(cls, q: Sequence[int], k: Sequence[int], hold: int, chunk: int) -> "Cuts":
        """From the shapes of q [B, H, T, K] and k [B, H, T * writes, K]; hold 0 is none."""
        return cls(q[2], k[2] // q[2], hold or None, chunk)

    @property
    def room(self) -> int:
        """Tokens of a chunk, at most."""
        return max(self.chunk // self.writes, 1)

    @property
    def extent(self) -> tuple[int, int]:
        """How many chunks, and the writes of the largest; by arithmetic alone where torch.compile may ask."""
        if self.hold is not None:
            return len(self.pieces), max(self.sizes) * self.writes
        size = even_size(self.tokens, 1, self.room)
        return -(-self.tokens // size), size * self.writes

    @cached_property
    def pieces(self) -> list[Piece]:
        if self.hold is None or self.hold <= self.room:
            spans = even(self.tokens, self.hold or 1, self.room)
            return [Piece(*span, number, True) for number, span in enumerate(spans)]
        pieces: list[Piece] = []
        for stretch in range(0, self.tokens, self.hold):
            first, spans = len(pieces), even(min(self.hold, self.tokens - stretch), 1, self.room)
            pieces += [Piece(stretch + start, stretch + stop, first, False) for start, stop in spans]
        return pieces

    @cached_property
    def sizes(self) -> list[int]:
        """Tokens of each chunk."""
        return [piece.stop - piece.start for piece in self.pieces]

    def split(self, x: Tensor | None, per_token: int = 1) -> list[Tensor | None]:
        """The chunks of [R, T * per_token, ..]."""
        if x is None:
            return [None] * len(self.pieces)
        return list(x.split([size * per_token for size in self.sizes], 1))

    def first_token(self) -> Tensor:
        """Of each token's chunk.  [T]."""
        return torch.tensor([piece.start for piece in self.pieces]).repeat_interleave(torch.tensor(self.sizes))

    def last_token(self) -> Tensor:
        return torch.tensor([piece.stop - 1 for piece in self.pieces]).repeat_interleave(torch.tensor(self.sizes))

    def seen(self) -> Tensor | None:
        """The writes of its chunk that each token sees [T]; None: its own and all before, one each."""
        if self.hold is None and self.writes == 1:
            return None
        token = torch.arange(self.tokens) - self.first_token()
        return (token + 1 if self.hold is None else token // self.hold * self.hold) * self.writes


def even(tokens: int, step: int, room: int) -> list[tuple[int, int]]:
    """Spans of equal length, a multiple of `step` and at most `room`; the last may be shorter."""
    size = even_size(tokens, step, room)
    return [(start, min(start + size, tokens)) for start in range(0, tokens, size)]


def even_size(tokens: int, step: int, room: int) -> int:
    """Their length."""
    count = -(-tokens // (room // step * step))
    return -(-tokens // (count * step)) * step
