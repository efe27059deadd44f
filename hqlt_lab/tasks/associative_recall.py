"""Associative recall: pairs of a key and a value are shown, then every key is asked for its value.

    key value key value ... then `gap` blanks, then slots of two tokens: a key and a blank, or two blanks
    answer at each of these keys: its value

Keys differ within an example, and so do values.  Each pair is asked once, in slot i with a weight of i^(power - 1): a
small power asks soon, as language does, 1 asks anywhere alike.  How many pairs a memory of fixed size can hold is what
tells the fast weights from the softmax.  The size counts all tokens that are read; a longer example has more blanks.

    task: {name: associative_recall, pairs: 8, keys: 64, values: 64, train_length: [64, 64], test_length: [64, 64]}

Arora et al. 2023, arXiv:2312.04927 (multi-query associative recall, MQAR; there with 4095 keys and 4096 values, and
random tokens for the blanks).
"""

from dataclasses import dataclass, replace
from math import perm
from typing import Any

import numpy as np

from hqlt_lab.registry import register
from hqlt_lab.tasks._base import Harder
from hqlt_lab.tasks._counter import Draws, Ints
from hqlt_lab.tasks._generated import Generated
from hqlt_lab.tasks._lengths import doubling

BLANK, FIRST = 1, 2


@register("task", "associative_recall")
@dataclass(frozen=True, kw_only=True)
class AssociativeRecall(Generated):
    train_length: tuple[int, int] = (64, 64)
    """The shortest and the longest size in train and short."""
    test_length: tuple[int, int] = (64, 64)
    """The same in test."""
    pairs: int = 8
    """Pairs to remember."""
    keys: int = 64
    """Different keys there are."""
    values: int = 64
    """Different values there are."""
    power: float = 0.01
    """How evenly the questions are spread: 1 is evenly, near 0 is soon."""

    gap: int = 0
    """Blanks between the last pair and the first slot."""

    unread = 0

    def mistakes(self) -> list[str]:
        # within an example no key and no value comes twice
        found = self.too_small({"pairs": 1, "keys": self.pairs, "values": max(self.pairs, 2), "gap": 0})
        return found + ([] if self.power > 0 else [f"power: a number above 0 is needed, got {self.power}."])

    @property
    def shortest(self) -> int:
        return 4 * self.pairs + self.gap

    @property
    def alphabet(self) -> tuple[str, ...]:
        keys, values = (f"k{number}" for number in range(self.keys)), (f"v{number}" for number in range(self.values))
        return ("_", ".", *keys, *values)

    @property
    def chance(self) -> float:
        return 100 / self.values

    def variety(self, size: int) -> int:
        return perm(self.keys, self.pairs) * perm(self.values, self.pairs) * perm(self.room(size), self.pairs)

    def room(self, size: Any) -> Any:
        """How many slots an example of that size has."""
        return (size - self.gap) // 2 - self.pairs

    def write(self, draws: Draws, sizes: Ints, width: int) -> tuple[Ints, Ints]:
        keys = draws.distinct("key", FIRST, FIRST + self.keys - 1, self.pairs)
        values = draws.distinct("value", FIRST + self.keys, FIRST + self.keys + self.values - 1, self.pairs)
        questions = 2 * self.pairs + self.gap + 2 * self.slots(draws, sizes, width)  # [B, pairs]
        tokens, labels = np.full((2, len(sizes), width), [[[BLANK]], [[-1]]])
        tokens[:, : 2 * self.pairs] = np.stack([keys, values], 2).reshape(len(sizes), -1)
        np.put_along_axis(tokens, questions, keys, 1)
        np.put_along_axis(labels, questions, values, 1)
        return tokens, labels

    def slots(self, draws: Draws, sizes: Ints, width: int) -> Ints:
        """Which slot asks for which pair, [B, pairs]."""
        number = np.arange(self.room(width))
        # the order in which exponential clocks of these rates ring is that of drawing by weight without replacement
        rings = -np.log(draws.fractions("slot", len(number))) / (number + 1.0) ** (self.power - 1)
        rings[number >= self.room(sizes)] = np.inf
        return rings.argsort(1)[:, : self.pairs]

    def harder(self, times: int) -> list[Harder]:
        """More pairs, in rows of one length; or the same ones, further from the questions."""
        longest, most = self.test_length[1], min(self.keys, self.values, times * self.pairs)
        pairs, gaps = doubling(most, self.pairs), [self.gap, *(self.gap + by * longest for by in doubling(times))]
        size = max(longest, 4 * pairs[-1] + self.gap)
        more = [replace(self, pairs=several, **sized(size)) for several in pairs]
        later = [replace(self, gap=gap, **sized(longest - self.gap + gap)) for gap in gaps]
        return [Harder("pairs", task.pairs, task) for task in more] + [Harder("gap", task.gap, task) for task in later]


def sized(size: int) -> dict[str, Any]:
    """Every split has examples of one size."""
    return {"train_length": (size, size), "test_length": (size, size), "valid_length": None}
