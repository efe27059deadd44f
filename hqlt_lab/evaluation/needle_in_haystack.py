"""Needle in a haystack: questions about a number that a long text mentions once.

    ... held-out text ...
    # The number of amber is 4711.
    ... held-out text, `distance` tokens of it ...
    # The number of amber is          -> " 4711"

With several pairs, all needles are in sequence and one of them is queried.  An answer is correct if greedy decoding
generates all tokens of the number.  All contexts of a test have the same length, so that no padding precedes an answer.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hqlt_lab.data.corpus_reader import Corpus
from hqlt_lab.data.window_order import IntArray
from hqlt_lab.evaluation.decoding_cost import prefill_state
from hqlt_lab.model.sequence_model import SequenceModel

NEEDLE_NAMES = (
    "amber",
    "basil",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grape",
    "hazel",
    "ivory",
    "jade",
    "kiwi",
    "lemon",
    "maple",
    "north",
    "olive",
    "pearl",
)
MAX_PAIRS = len(NEEDLE_NAMES)
MIN_PREFIX_TOKENS, MAX_HAYSTACK_TOKENS = 16, 10_000_000  # filler before the first needle, and in total


class NeedleQuestion(NamedTuple):
    """A context that ends with a question, and its answer, as tokens."""

    context: list[int]
    answer: list[int]


@dataclass(frozen=True)
class Haystack:
    """Generates questions from held-out text with inserted needles."""

    corpus: Corpus
    length: int  # tokens of a context; longer if the distance requires it
    rows: int = 32  # questions per test

    def make_questions(self, distance: int, pairs: int = 1) -> list[NeedleQuestion]:
        """Return questions whose needle ends `distance` tokens before them, or slightly more if needles follow it."""
        rows = [self.build_question_tail(number, distance, pairs) for number in range(self.rows)]
        length = max(self.length, max(len(row.context) for row in rows) + MIN_PREFIX_TOKENS)
        return [
            NeedleQuestion(self.slice_filler(-number, length - len(row.context)) + row.context, row.answer)
            for number, row in enumerate(rows, 1)
        ]

    def build_question_tail(self, row_index: int, distance: int, pairs: int) -> NeedleQuestion:
        """Return a question whose context begins with the first needle."""
        rng = random.Random(f"needle {row_index} {pairs}")
        values = {name: rng.randint(1000, 9999) for name in rng.sample(NEEDLE_NAMES, pairs)}
        queried = rng.choice(list(values))
        needles = [self.corpus.encode(f"\n# The number of {name} is {value}.\n") for name, value in values.items()]
        tokens_after = sum(map(len, needles[list(values).index(queried) + 1 :]))
        filler = self.slice_filler(row_index, max(distance - tokens_after, 0))
        context = [token for needle in needles for token in needle] + filler
        question = f"\n# The number of {queried} is"
        # encoded together, as in the text: a number encoded alone may begin with a token that only occurs at a start
        tokens, question_length = self.corpus.encode(f"{question} {values[queried]}"), len(self.corpus.encode(question))
        return NeedleQuestion(context + tokens[:question_length], tokens[question_length:])

    def slice_filler(self, row_index: int, length: int) -> list[int]:
        """Return a different slice of the test text for each row, wrapping around at its end."""
        first = row_index * 7919 % len(self.filler_tokens)  # a prime, so that rows begin at different positions
        return np.take(self.filler_tokens, np.arange(first, first + length), mode="wrap").tolist()

    @cached_property
    def filler_tokens(self) -> IntArray:
        """The first tokens of the test split, without separators."""
        tokens = self.corpus.read_tokens("test", 0, min(self.corpus.num_tokens("test"), MAX_HAYSTACK_TOKENS))
        return tokens[tokens != self.corpus.index.separator]


@torch.no_grad()
def needle_accuracy(model: SequenceModel, questions: Sequence[NeedleQuestion], batch_size: int) -> float:
    """Return the percentage of questions whose answer is generated completely."""
    device = next(model.parameters()).device
    num_correct = 0
    for first in range(0, len(questions), batch_size):
        batch = questions[first : first + batch_size]
        context = torch.tensor([question.context for question in batch], device=device)
        num_correct += int(check_answers(model, context, [question.answer for question in batch]).sum())
    return 100 * num_correct / len(questions)


def check_answers(model: SequenceModel, context: Tensor, answers: Sequence[Sequence[int]]) -> Tensor:
    """Return whether each answer is generated correctly, bool [B].  Computes logits only for the answers."""
    longest = max(map(len, answers))
    labels = torch.tensor([[*answer, *[-1] * (longest - len(answer))] for answer in answers], device=context.device)
    state = prefill_state(model, context[:, :-1])
    logits, _ = model(torch.cat([context[:, -1:], labels[:, :-1].clamp(min=0)], 1), state)
    return ((logits.argmax(-1) == labels) | (labels < 0)).all(1)
