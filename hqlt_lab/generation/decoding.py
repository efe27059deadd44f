"""Several texts, token by token, on a state of constant size; a row that has ended leaves the batch."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from hqlt_lab.generation.choose import choose, draws_of
from hqlt_lab.generation.prompts import PIECE, advance, read
from hqlt_lab.generation.sampling import Sampling
from hqlt_lab.generation.speech import Speech
from hqlt_lab.generation.text_model import TextModel
from hqlt_lab.model.state import State, select_rows

Reason = Literal["stop", "end of document", "length"]


class Piece(NamedTuple):
    """What one token has brought."""

    row: int  # number of the prompt
    text: str  # what can be shown; empty while a character or a stop string may be half there
    ended: Reason | None  # why nothing more comes


@dataclass
class Row:
    """A text that is being generated."""

    number: int
    speech: Speech
    draws: torch.Generator
    ended: Reason | None = None

    def take(self, token: int, options: Sampling, separator: int) -> Piece:
        """Go on by a token."""
        text = ""
        if token == separator:
            self.ended = "end of document"
        else:
            text = self.speech.add(token)
            if self.speech.stopped:
                self.ended = "stop"
            elif len(self.speech.generated) == options.tokens:
                self.ended = "length"
        if self.ended:
            text += self.speech.end()
            self.ended = "stop" if self.speech.stopped else self.ended
        return Piece(self.number, text, self.ended)


class Decoding:
    """The rows of one batch.

    decoding = Decoding(model, prompts, options)        reads the prompts
    while decoding.rows: decoding.step()                a token for every row that has not ended
    """

    def __init__(
        self,
        model: TextModel,
        prompts: Sequence[Sequence[int]],
        options: Sampling,
        first: int = 0,
        piece: int = PIECE,
    ) -> None:
        self.model, self.options = model, options
        self.rows = [
            Row(first + number, Speech(model, prompt, options.stop), draws_of(options.seed, first + number))
            for number, prompt in enumerate(prompts)
        ]
        self.generated = 0  # tokens, of all rows
        start = time.perf_counter()
        self.logits: Tensor  # [rows that have not ended, vocabulary]
        self.state: State
        self.logits, self.state = read(model, prompts, piece)
        wait_for(model.device)
        self.reading, self.deciding = time.perf_counter() - start, 0.0  # seconds

    def step(self) -> list[Piece]:
        """One token for each row; those that end leave."""
        start = time.perf_counter()
        tokens = choose(self.logits, self.options, [row.draws for row in self.rows])
        self.generated += len(tokens)
        pairs = zip(self.rows, tokens, strict=True)
        pieces = [row.take(token, self.options, self.model.separator) for row, token in pairs]
        going = [place for place, row in enumerate(self.rows) if not row.ended]
        if len(going) < len(self.rows):
            self.state = select_rows(self.state, torch.tensor(going, dtype=torch.long, device=self.model.device))
            self.rows = [self.rows[place] for place in going]
        if going:
            self.logits, self.state = advance(self.model, [tokens[place] for place in going], self.state)
            wait_for(self.model.device)
        self.deciding += time.perf_counter() - start
        return pieces


def wait_for(device: torch.device) -> None:
    """Until a GPU has done what it was told, so that times are those of the work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
