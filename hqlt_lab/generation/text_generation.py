"""Generate a text for each prompt, or stream the texts as they are generated.

    for result in generate(model, ["Once upon", "The key"], Sampling(tokens=50)):
        print(result.text, result.reason)

    for chunk in stream_text(model, ["Once upon"], Sampling(tokens=50)):
        print(chunk.text, end="", flush=True)

A prompt begins with the separator, as documents do in training.  A text ends at the separator, at a stop string, or
after the maximal number of tokens.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hqlt_lab.generation.batch_decoder import BatchDecoder, DecodingRow, FinishReason, TextChunk
from hqlt_lab.generation.prefill_decode import Prompts, tokenize_prompts
from hqlt_lab.generation.sampling_options import Sampling
from hqlt_lab.generation.text_model import TextModel

DEFAULT_BATCH_SIZE = 64  # prompts per batch


class GenerationSpeed(NamedTuple):
    """Tokens per second, summed over all rows."""

    prompt: float
    decoding: float


@dataclass(frozen=True, kw_only=True)
class GeneratedText:
    """The text generated for one prompt."""

    tokens: list[int]  # all generated tokens, including those of a stop string, without the separator
    text: str  # without the stop string
    reason: FinishReason  # why generation ended
    speed: GenerationSpeed  # of the whole call


class SpeedCounter:
    """Sums the tokens and seconds of all batches of one call."""

    def __init__(self) -> None:
        self.prompt_tokens = self.generated_tokens = 0
        self.prefill_seconds = self.decode_seconds = 0.0

    def add_batch(self, prompt_tokens: int, decoder: BatchDecoder) -> None:
        self.prompt_tokens += prompt_tokens
        self.generated_tokens += decoder.generated_tokens
        self.prefill_seconds += decoder.prefill_seconds
        self.decode_seconds += decoder.decode_seconds

    @property
    def speed(self) -> GenerationSpeed:
        return GenerationSpeed(
            self.prompt_tokens / (self.prefill_seconds or 1e-9), self.generated_tokens / (self.decode_seconds or 1e-9)
        )


def generate(
    model: TextModel,
    prompts: Prompts,
    options: Sampling | None = None,
    on_chunk: Callable[[TextChunk], None] | None = None,
    batch_size: int = DEFAULT_BATCH_SIZE,
) -> list[GeneratedText]:
    """Return the generated text for each prompt; `on_chunk` is called with every chunk of text."""
    options, counter, rows = options or Sampling(), SpeedCounter(), list[DecodingRow]()
    tokens = tokenize_prompts(model, prompts)
    for first in range(0, len(tokens), batch_size):
        batch = tokens[first : first + batch_size]
        decoder = BatchDecoder(model, batch, options, first)
        rows += decoder.rows  # in the order of the prompts, whichever finishes first
        while decoder.rows:
            for chunk in decoder.step():
                if on_chunk:
                    on_chunk(chunk)
        counter.add_batch(sum(map(len, batch)), decoder)
    return [
        GeneratedText(
            tokens=row.detokenizer.generated_tokens,
            text=row.detokenizer.text,
            reason=row.finish_reason or "length",
            speed=counter.speed,
        )
        for row in rows
    ]


def stream_text(model: TextModel, prompts: Prompts, options: Sampling | None = None) -> Iterator[TextChunk]:
    """Yield the texts of all prompts in chunks as they are generated; the chunks of a row add up to its text."""
    decoder = BatchDecoder(model, tokenize_prompts(model, prompts), options or Sampling())
    while decoder.rows:
        yield from decoder.step()
