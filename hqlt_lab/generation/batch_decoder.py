"""Batched decoding, token by token, on a state of constant size; a finished row is removed from the batch."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from hqlt_lab.generation.detokenizer import IncrementalDetokenizer
from hqlt_lab.generation.prefill_decode import PREFILL_CHUNK_TOKENS, decode_step, prefill_prompts
from hqlt_lab.generation.sampler import row_generator, sample_tokens
from hqlt_lab.generation.sampling_options import Sampling
from hqlt_lab.generation.text_model import TextModel
from hqlt_lab.model.state import State, select_rows

FinishReason = Literal["stop", "end of document", "length"]


class TextChunk(NamedTuple):
    """The text that one generated token adds to a row."""

    row_index: int  # index of the prompt
    text: str  # empty while a character or a possible stop string is incomplete
    finish_reason: FinishReason | None  # None: the row continues


@dataclass
class DecodingRow:
    """A row of the batch, with its text so far."""

    row_index: int
    detokenizer: IncrementalDetokenizer
    generator: torch.Generator
    finish_reason: FinishReason | None = None

    def append_token(self, token: int, options: Sampling, separator: int) -> TextChunk:
        """Add one token, and return the text that can be shown now."""
        text = ""
        if token == separator:
            self.finish_reason = "end of document"
        else:
            text = self.detokenizer.append_token(token)
            if self.detokenizer.has_stopped:
                self.finish_reason = "stop"
            elif len(self.detokenizer.generated_tokens) == options.tokens:
                self.finish_reason = "length"
        if self.finish_reason:
            text += self.detokenizer.flush_text()
            self.finish_reason = "stop" if self.detokenizer.has_stopped else self.finish_reason
        return TextChunk(self.row_index, text, self.finish_reason)


class BatchDecoder:
    """Decodes the rows of one batch.

    decoder = BatchDecoder(model, prompts, options)     prefills the prompts
    while decoder.rows: decoder.step()                  generates a token for every unfinished row
    """

    def __init__(
        self,
        model: TextModel,
        prompts: Sequence[Sequence[int]],
        options: Sampling,
        first_row: int = 0,
        chunk_length: int = PREFILL_CHUNK_TOKENS,
    ) -> None:
        self.model, self.options = model, options
        self.rows = [
            DecodingRow(
                row_index,
                IncrementalDetokenizer(model, prompt, options.stop),
                row_generator(options.seed, row_index),
            )
            for row_index, prompt in enumerate(prompts, first_row)
        ]
        self.generated_tokens = 0  # of all rows
        start = time.perf_counter()
        self.logits: Tensor  # [unfinished rows, vocabulary]
        self.state: State
        self.logits, self.state = prefill_prompts(model, prompts, chunk_length)
        synchronize_device(model.device)
        self.prefill_seconds, self.decode_seconds = time.perf_counter() - start, 0.0

    def step(self) -> list[TextChunk]:
        """Generate one token for each unfinished row, and remove the rows that are finished now."""
        start = time.perf_counter()
        tokens = sample_tokens(self.logits, self.options, [row.generator for row in self.rows])
        self.generated_tokens += len(tokens)
        pairs = zip(self.rows, tokens, strict=True)
        chunks = [row.append_token(token, self.options, self.model.separator) for row, token in pairs]
        unfinished = [i for i, row in enumerate(self.rows) if not row.finish_reason]
        if len(unfinished) < len(self.rows):
            self.state = select_rows(self.state, torch.tensor(unfinished, dtype=torch.long, device=self.model.device))
            self.rows = [self.rows[i] for i in unfinished]
        if unfinished:
            self.logits, self.state = decode_step(self.model, [tokens[i] for i in unfinished], self.state)
            synchronize_device(self.model.device)
        self.decode_seconds += time.perf_counter() - start
        return chunks


def synchronize_device(device: torch.device) -> None:
    """Wait for pending GPU work, so that measured times include it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
