"""Where the chunks lie: cut so that a chunk can be solved at once and no token reads a state inside another chunk.

Without `hold` the cuts are as even as can be.  With it, a chunk holds whole stretches; a stretch that is longer than a
chunk is cut by itself, and all its pieces read the state before the first of them.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Piece(NamedTuple):
    """One chunk, and the chunk before which the state stood that it reads; `inside`: it reads its own writes too."""

    start: int  # token
    stop: int
    opened_by: int  # chunk
    inside: bool


def cut(tokens: int, hold: int | None, room: int) -> list[Piece]:
    """Chunks of at most `room` tokens over a text."""
    if hold is not None and hold > room:
        pieces: list[Piece] = []
        for stretch in range(0, tokens, hold):
            first, spans = len(pieces), even(min(hold, tokens - stretch), 1, room)
            pieces += [Piece(stretch + start, stretch + stop, first, False) for start, stop in spans]
        return pieces
    return [Piece(*span, number, True) for number, span in enumerate(even(tokens, hold or 1, room))]


def even(tokens: int, step: int, room: int) -> list[tuple[int, int]]:
    """Spans of equal length, a multiple of `step` and at most `room`; the last may be shorter."""
    count = -(-tokens // (room // step * step))
    size = -(-tokens // (count * step)) * step
    return [(start, min(start + size, tokens)) for start in range(0, tokens, size)]


def seen_before(piece: Piece, hold: int | None, writes: int, device: torch.device) -> Tensor | None:
    """How many writes of its chunk each token sees [C]; None: its own and all before, one each."""
    if hold is None and writes == 1:
        return None
    token = torch.arange(piece.stop - piece.start, device=device)
    return (token + 1 if hold is None else token // hold * hold) * writes
