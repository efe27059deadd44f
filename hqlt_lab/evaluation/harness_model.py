"""Our model as one of lm-eval's: log-likelihoods of continuations and of whole texts, and greedy completions.

    border      spaces at the end of a context belong to the continuation (lm-eval's `_encode_pair`)
    context     begins with the separator, as every document did in training; an empty one is the separator alone
    truncation  on the left, to `length` tokens that are read, or `length` - max_gen_toks before a completion
    rolling     windows of `length` tokens that are each predicted once, by lm-eval's own functions

Every arm gets the same length, whatever its positions would allow.  How many texts did not fit is counted.
"""

from collections.abc import Callable, Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from hqlt_lab.errors import ConfigError
from hqlt_lab.evaluation.score import Likelihood, Row, batches, row_of, score
from hqlt_lab.generation.decoding import Decoding
from hqlt_lab.generation.sampling import Sampling
from hqlt_lab.generation.text_model import TextModel

Told = Callable[[int, int], None]  # rows that are done, and how many there are
MOST = 256  # tokens of a completion where the task does not say, as lm-eval has it


def nobody(done: int, total: int) -> None:
    """Who does not want to be told."""


class HarnessModel(TemplateLM):
    """A text model, with one context length."""

    def __init__(
        self, text_model: TextModel, length: int | None = None, batch_size: int = 1, told: Told = nobody
    ) -> None:
        super().__init__()
        self.text_model, self.batch_size, self.told = text_model, batch_size, told
        self.max_length = length or text_model.trained_length
        self.truncated = 0  # texts that did not fit

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
                raise ConfigError(
                    f"length: a continuation of {len(continuation)} tokens does not fit {self.max_length}. Use more."
                )
            self.truncated += len(context) + len(continuation) > self.max_length + 1
        rows = [row_of(context, continuation, self.max_length) for _, context, continuation in requests]
        return [(found.log_probability, found.greedy) for found in self.scores(rows)]

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = True) -> list[float]:
        rows, counts = [], []
        for (text,) in (request.args for request in requests):
            tokens = self.text_model.encode(text)
            windows = map(
                make_disjoint_window, get_rolling_token_windows(tokens, self.eot_token_id, self.max_length, 1)
            )
            some = [row_of(context, due, self.max_length) for context, due in windows]
            rows += some
            counts.append(len(some))
        found = iter(self.scores(rows))
        return [sum(next(found).log_probability for _ in range(count)) for count in counts]

    def scores(self, rows: Sequence[Row]) -> list[Likelihood]:
        """Of each row, in its place."""
        found: dict[int, Likelihood] = {}
        for numbers in batches(rows, self.batch_size):
            some = score(self.text_model.model, [rows[number] for number in numbers], self.text_model.device)
            found |= zip(numbers, some, strict=True)
            self.told(len(found), len(rows))
        return [found[number] for number in range(len(rows))]

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = True) -> list[str]:
        found: dict[int, str] = {}
        alike: dict[str, list[int]] = {}
        for number, request in enumerate(requests):
            alike.setdefault(repr(request.args[1]), []).append(number)
        for numbers in alike.values():
            options, room = self.ends(requests[numbers[0]].args[1])
            prompts = [Row(self.prompt(requests[number].args[0], room), []) for number in numbers]
            for some in batches(prompts, self.batch_size):
                texts = completed(self.text_model, [prompts[place].tokens for place in some], options)
                found |= zip([numbers[place] for place in some], texts, strict=True)
                self.told(len(found), len(requests))
        return [found[number] for number in range(len(requests))]

    def ends(self, wished: dict[str, Any]) -> tuple[Sampling, int]:
        """How a completion is made, and how many tokens of context that leaves."""
        told: Any = normalize_gen_kwargs(wished, MOST)
        room = self.max_length - told["max_gen_toks"]
        if room < 1:
            raise ConfigError(
                f"length: {self.max_length} tokens leave no room for a prompt beside the {told['max_gen_toks']} of its "
                "completion. Use more."
            )
        stop = tuple(dict.fromkeys(one for one in told.get("until") or () if one))
        temperature = told["temperature"] if told.get("do_sample") else 0.0
        return Sampling(tokens=told["max_gen_toks"], temperature=temperature, stop=stop), room

    def prompt(self, context: str, room: int) -> list[int]:
        """The end of a context, as far as there is room."""
        tokens = self.tok_encode(context)
        self.truncated += len(tokens) > room
        return tokens[-room:]


def completed(text_model: TextModel, prompts: Sequence[list[int]], options: Sampling) -> list[str]:
    """What follows each prompt; as it is, for a prompt that was cut has no separator any more."""
    decoding = Decoding(text_model, prompts, options)
    rows = decoding.rows  # a step makes a new list of those that go on
    while decoding.rows:
        decoding.step()
    return [row.speech.text for row in rows]
