"""Prompts to texts.

    for found in generate(model, ["Once upon", "The key"], Sampling(tokens=50)):
        print(found.text, found.reason)

    for piece in pieces(model, ["Once upon"], Sampling(tokens=50)):
        print(piece.text, end="", flush=True)

A prompt begins with the separator, as documents do in training.  A text ends at the separator, at a stop string, or
when it has as many tokens as were asked for.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hqlt_lab.generation.decoding import Decoding, Piece, Reason
from hqlt_lab.generation.prompts import Prompts, tokens_of
from hqlt_lab.generation.sampling import Sampling
from hqlt_lab.generation.text_model import TextModel

ROWS = 64  # prompts at a time


class Speed(NamedTuple):
    """Tokens per second, all rows together."""

    prompt: float
    decoding: float


@dataclass(frozen=True, kw_only=True)
class Generated:
    """What followed a prompt."""

    tokens: list[int]  # all that were generated, those of a stop string too, but no separator
    text: str  # up to the stop string
    reason: Reason  # why it ended
    speed: Speed  # of the whole call


class Tally:
    """What the batches of one call took."""

    def __init__(self) -> None:
        self.prompt = self.generated = 0
        self.reading = self.deciding = 0.0

    def add(self, prompt: int, decoding: Decoding) -> None:
        self.prompt, self.generated = self.prompt + prompt, self.generated + decoding.generated
        self.reading, self.deciding = self.reading + decoding.reading, self.deciding + decoding.deciding

    @property
    def speed(self) -> Speed:
        return Speed(self.prompt / (self.reading or 1e-9), self.generated / (self.deciding or 1e-9))


def generate(
    model: TextModel,
    prompts: Prompts,
    options: Sampling | None = None,
    told: Callable[[Piece], None] | None = None,
    rows: int = ROWS,
) -> list[Generated]:
    """The text that follows each prompt; `told` hears every piece, and `rows` prompts are read at a time."""
    options, tally, ended = options or Sampling(), Tally(), []
    tokens = tokens_of(model, prompts)
    for first in range(0, len(tokens), rows):
        decoding = Decoding(model, tokens[first : first + rows], options, first)
        ended += decoding.rows  # in the order of the prompts, whichever ends first
        while decoding.rows:
            for piece in decoding.step():
                if told:
                    told(piece)
        tally.add(sum(map(len, tokens[first : first + rows])), decoding)
    return [
        Generated(tokens=row.speech.generated, text=row.speech.text, reason=row.ended or "length", speed=tally.speed)
        for row in ended
    ]


def pieces(model: TextModel, prompts: Prompts, options: Sampling | None = None) -> Iterator[Piece]:
    """The same as it comes, all prompts at a time; the pieces of a row, put together, are its text."""
    decoding = Decoding(model, tokens_of(model, prompts), options or Sampling())
    while decoding.rows:
        yield from decoding.step()
