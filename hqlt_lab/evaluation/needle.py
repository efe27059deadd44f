"""Needles in a haystack: a number that the text mentions once, asked for much later.

    ... held-out text ...
    # The number of amber is 4711.
    ... held-out text, `distance` tokens of it ...
    # The number of amber is          -> " 4711"

With several pairs, all of them stand one after the other, and one is asked for.  Right is what greedy decoding writes
to the last token of the number.  Rows of one question are equally long, so that nothing is padded before the answer.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hqlt_lab.data.corpus import Corpus
from hqlt_lab.data.order import Ints
from hqlt_lab.evaluation.token_cost import read
from hqlt_lab.model.sequence_model import SequenceModel

NAMES = (
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
MOST_PAIRS = len(NAMES)
LEAST, MOST = 16, 10_000_000  # tokens of hay before the first needle, and that there are


class Row(NamedTuple):
    """One question."""

    context: list[int]
    answer: list[int]


@dataclass(frozen=True)
class Haystack:
    """Held-out text in which needles are hidden."""

    corpus: Corpus
    length: int  # tokens of a row before its answer; more where the distance needs them
    rows: int = 32

    def hidden(self, distance: int, pairs: int = 1) -> list[Row]:
        """Questions whose needle ends `distance` tokens before they begin, or a little more behind other needles."""
        rows = [self.row(number, distance, pairs) for number in range(self.rows)]
        length = max(self.length, max(len(row.context) for row in rows) + LEAST)
        return [
            Row(self.hay(-number, length - len(row.context)) + row.context, row.answer)
            for number, row in enumerate(rows, 1)
        ]

    def row(self, number: int, distance: int, pairs: int) -> Row:
        """From the first needle on."""
        draw = random.Random(f"needle {number} {pairs}")
        named = {name: draw.randint(1000, 9999) for name in draw.sample(NAMES, pairs)}
        asked = draw.choice(list(named))
        needles = [self.corpus.encode(f"\n# The number of {name} is {value}.\n") for name, value in named.items()]
        behind = sum(map(len, needles[list(named).index(asked) + 1 :]))
        told = [token for needle in needles for token in needle] + self.hay(number, max(distance - behind, 0))
        question = f"\n# The number of {asked} is"
        # together, as in the text: alone, a number may begin with a token that no text has in its middle
        whole, asking = self.corpus.encode(f"{question} {named[asked]}"), len(self.corpus.encode(question))
        return Row(told + whole[:asking], whole[asking:])

    def hay(self, number: int, length: int) -> list[int]:
        """Another piece of the test text for each row; from its beginning again where it ends."""
        first = number * 7919 % len(self.straw)  # a prime: rows do not begin alike
        return np.take(self.straw, np.arange(first, first + length), mode="wrap").tolist()

    @cached_property
    def straw(self) -> Ints:
        """The beginning of the test text, as if it were one document."""
        tokens = self.corpus.piece("test", 0, min(self.corpus.tokens("test"), MOST))
        return tokens[tokens != self.corpus.index.separator]


@torch.no_grad()
def found_needles(model: SequenceModel, rows: Sequence[Row], batch_size: int) -> float:
    """Percent of the questions that are answered to the last token."""
    device = next(model.parameters()).device
    right = 0
    for first in range(0, len(rows), batch_size):
        some = rows[first : first + batch_size]
        context = torch.tensor([row.context for row in some], device=device)
        right += int(answered(model, context, [row.answer for row in some]).sum())
    return 100 * right / len(rows)


def answered(model: SequenceModel, context: Tensor, answers: Sequence[Sequence[int]]) -> Tensor:
    """Which rows are right, bool [B]: the context is read without logits, the answer with them."""
    longest = max(map(len, answers))
    due = torch.tensor([[*answer, *[-1] * (longest - len(answer))] for answer in answers], device=context.device)
    state = read(model, context[:, :-1])
    logits, _ = model(torch.cat([context[:, -1:], due[:, :-1].clamp(min=0)], 1), state)
    return ((logits.argmax(-1) == due) | (due < 0)).all(1)
