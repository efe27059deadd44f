"""A trained model as an lm-eval model: log-likelihoods of continuations and of whole texts, and completions.

    boundary    spaces at the end of a context belong to the continuation (lm-eval's `_encode_pair`)
    context     begins with the separator, as every document in training; an empty one is only the separator
    truncation  on the left, to `length` input tokens, or to `length` - max_gen_toks before a completion
    rolling     windows of `length` tokens, in which each token is predicted once, by lm-eval's own functions

Every arm has the same length, regardless of its position encoding.  Truncated texts are counted.
"""

from collections.abc import Callable, Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from hqlt_lab.errors import ConfigError
from hqlt_lab.evaluation.loglikelihood import (
    ContinuationScore,
    ScoringRow,
    batch_by_length,
    make_scoring_row,
    score_batch,
)
from hqlt_lab.generation.batch_decoder import BatchDecoder
from hqlt_lab.generation.sampling_options import Sampling
from hqlt_lab.generation.text_model import TextModel

RowProgressCallback = Callable[[int, int], None]  # finished rows, total rows
DEFAULT_MAX_GEN_TOKENS = 256  # lm-eval's default if the task does not specify it


def ignore_progress(done: int, total: int) -> None:
    """Do nothing."""


class LmEvalModel(TemplateLM):
    """An lm-eval model backed by a text model, with a fixed context length."""

    def __init__(
        self,
        text_model: TextModel,
        length: int | None = None,
        batch_size: int = 1,
        on_progress: RowProgressCallback = ignore_progress,
    ) -> None:
        super().__init__()
        self.text_model, self.batch_size, self.on_progress = text_model, batch_size, on_progress
        self.max_length = length or text_model.trained_length
        self.num_truncated = 0  # texts longer than the context

    @property
    def eot_token_id(self) -> int:
        return self.text_model.separator

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **options: Any) -> list[int]:
        tokens = self.text_model.encode(string)
        return tokens if add_special_tokens is False else [self.eot_token_id, *tokens]

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        return super().loglikelihood(requests, disable_tqdm=disable_tqdm)

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **options: Any
    ) -> list[tuple[float, bool]]:
        for _, context, continuation in requests:
            if len(continuation) > self.max_length:
                message = f"a continuation of {len(continuation)} tokens is longer than the context, {self.max_length}."
                raise ConfigError.at("length", "continuation_too_long", message, "Use a larger length.")
            self.num_truncated += len(context) + len(continuation) > self.max_length + 1
        rows = [make_scoring_row(context, continuation, self.max_length) for _, context, continuation in requests]
        return [(score.log_probability, score.is_greedy) for score in self.score_rows(rows)]

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = True) -> list[float]:
        rows, counts = [], []
        for (text,) in (request.args for request in requests):
            tokens = self.text_model.encode(text)
            windows = map(
                make_disjoint_window, get_rolling_token_windows(tokens, self.eot_token_id, self.max_length, 1)
            )
            text_rows = [make_scoring_row(context, targets, self.max_length) for context, targets in windows]
            rows += text_rows
            counts.append(len(text_rows))
        scores = iter(self.score_rows(rows))
        return [sum(next(scores).log_probability for _ in range(count)) for count in counts]

    def score_rows(self, rows: Sequence[ScoringRow]) -> list[ContinuationScore]:
        """Score rows in batches of similar length and return the scores in the original order."""
        scores: dict[int, ContinuationScore] = {}
        for indices in batch_by_length(rows, self.batch_size):
            batch = [rows[index] for index in indices]
            batch_scores = score_batch(self.text_model.model, batch, self.text_model.device)
            scores |= zip(indices, batch_scores, strict=True)
            self.on_progress(len(scores), len(rows))
        return [scores[index] for index in range(len(rows))]

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = True) -> list[str]:
        texts: dict[int, str] = {}
        indices_by_options: dict[str, list[int]] = {}
        for index, request in enumerate(requests):
            indices_by_options.setdefault(repr(request.args[1]), []).append(index)
        for indices in indices_by_options.values():
            options, max_tokens = self.parse_gen_kwargs(requests[indices[0]].args[1])
            prompts = [ScoringRow(self.encode_context(requests[index].args[0], max_tokens), []) for index in indices]
            for batch in batch_by_length(prompts, self.batch_size):
                completions = complete_prompts(self.text_model, [prompts[row].tokens for row in batch], options)
                texts |= zip([indices[row] for row in batch], completions, strict=True)
                self.on_progress(len(texts), len(requests))
        return [texts[index] for index in range(len(requests))]

    def parse_gen_kwargs(self, gen_kwargs: dict[str, Any]) -> tuple[Sampling, int]:
        """Return the sampling options of a completion and the maximum number of context tokens."""
        kwargs: Any = normalize_gen_kwargs(gen_kwargs, DEFAULT_MAX_GEN_TOKENS)
        max_context = self.max_length - kwargs["max_gen_toks"]
        if max_context < 1:
            raise ConfigError.at(
                "length",
                "no_room_for_prompt",
                f"{self.max_length} tokens cannot hold a prompt and a completion of {kwargs['max_gen_toks']} tokens.",
                "Use a larger length.",
            )
        stop = tuple(dict.fromkeys(text for text in kwargs.get("until") or () if text))
        temperature = kwargs["temperature"] if kwargs.get("do_sample") else 0.0
        return Sampling(tokens=kwargs["max_gen_toks"], temperature=temperature, stop=stop), max_context

    def encode_context(self, context: str, max_tokens: int) -> list[int]:
        """Encode a context and keep its last `max_tokens` tokens."""
        tokens = self.tok_encode(context)
        self.num_truncated += len(tokens) > max_tokens
        return tokens[-max_tokens:]


def complete_prompts(text_model: TextModel, prompts: Sequence[list[int]], options: Sampling) -> list[str]:
    """Generate the continuation of each prompt.  Adds no separator: a truncated prompt does not begin with one."""
    decoder = BatchDecoder(text_model, prompts, options)
    rows = decoder.rows  # `step` replaces this list by the unfinished rows
    while decoder.rows:
        decoder.step()
    return [row.detokenizer.text for row in rows]
