"""Compositional recall: associative recall with keys of two tokens, all combinations of few first and few second ones.

    first second value ... for all pairs of `side` first and `side` second keys, in random order,
    then slots of three tokens: first second blank, or three blanks       label at each of these second keys: the value

First keys are distinct, second keys too, and values too.  Each combination is queried once, in slot i with a weight of
i^(power - 1).  Neither key alone determines the value, so that two tokens have to be bound before they are stored.  The
size counts all input tokens.

One of the two keys alone leaves `side` values (`shortcut_accuracies`).

    task: {name: compositional_recall, side: 2, train_length: [64, 64], test_length: [64, 64]}

After the compositional variant of associative recall in HazyResearch/zoology (2026), where `side`^2 is the number of
pairs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import factorial, perm
from typing import Any

import numpy as np

from hqlt_lab.errors import ConfigIssue
from hqlt_lab.registry import register
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._generated_task import GeneratedTask
from hqlt_lab.tasks._token_names import name_tokens
from hqlt_lab.tasks.recall._query_slots import Fill, count_fillings, draw_slots, find_power_issues, make_filler

BLANK, FIRST_KEY = 1, 2


@register("task", "compositional_recall")
@dataclass(frozen=True, kw_only=True)
class CompositionalRecall(GeneratedTask):
    train_length: tuple[int, int] = (64, 64)
    """Smallest and largest size in train and short."""
    test_length: tuple[int, int] = (64, 64)
    """Smallest and largest size in test."""
    side: int = 2
    """Number of first keys and of second keys in a row; side x side values are to be remembered."""
    first_keys: int = 64
    """Number of different first keys."""
    second_keys: int = 64
    """Number of different second keys."""
    values: int = 64
    """Number of different values."""
    power: float = 0.01
    """How evenly the queries are spread: 1 is uniform, near 0 most queries come soon after the pairs."""
    fill: Fill = "blank"
    """Tokens in slots without a query: blanks, or random tokens, which may be keys and values."""

    unread_tokens = 0

    def find_option_issues(self) -> list[ConfigIssue]:
        minimums = {"side": 1, "first_keys": self.side, "second_keys": self.side, "values": max(self.pairs, 2)}
        return self.check_minimums(minimums) + find_power_issues(self.power)

    @property
    def pairs(self) -> int:
        """Number of values to remember."""
        return self.side**2

    @property
    def min_size(self) -> int:
        return 6 * self.pairs

    @property
    def alphabet(self) -> tuple[str, ...]:
        return name_tokens(("_", "."), ("a", self.first_keys), ("b", self.second_keys), ("v", self.values))

    @property
    def chance_level(self) -> float:
        return 100 / self.values

    @property
    def shortcut_accuracies(self) -> Mapping[str, float]:
        return {"a value of one of the two keys": 100 / self.side} if self.side > 1 else {}

    def count_inputs(self, size: int) -> int:
        keys = perm(self.first_keys, self.side) * perm(self.second_keys, self.side) // factorial(self.side) ** 2
        shown = keys * factorial(self.pairs) * perm(self.values, self.pairs)
        fillings = count_fillings(self.fill, size - 5 * self.pairs, self.vocabulary)
        return shown * perm(self.num_slots(size), self.pairs) * fillings

    def num_slots(self, size: Any) -> Any:
        """Return the number of slots of examples of this size, an integer or an array."""
        return size // 3 - self.pairs

    def write_examples(self, rng: CounterRng, sizes: IntArray, width: int) -> tuple[IntArray, IntArray]:
        first_second, rows = FIRST_KEY + self.first_keys, np.arange(len(sizes))[:, None]
        first_value = first_second + self.second_keys
        first = rng.distinct_integers("first key", FIRST_KEY, first_second - 1, self.side)
        second = rng.distinct_integers("second key", first_second, first_value - 1, self.side)
        values = rng.distinct_integers("value", first_value, first_value + self.values - 1, self.pairs)
        row_number, column_number = np.divmod(rng.permutations("order", self.pairs), self.side)  # of the grid of keys
        first_keys, second_keys = first[rows, row_number], second[rows, column_number]  # [B, pairs]

        tokens, labels = make_filler(rng, self.fill, width, BLANK, self.vocabulary), np.full((len(sizes), width), -1)
        shown_tokens = 3 * self.pairs
        tokens[:, :shown_tokens] = np.stack([first_keys, second_keys, values], 2).reshape(len(sizes), -1)
        queries = shown_tokens + 3 * draw_slots(rng, self.num_slots(sizes), self.pairs, self.power)
        np.put_along_axis(tokens, queries, first_keys, 1)
        np.put_along_axis(tokens, queries + 1, second_keys, 1)
        np.put_along_axis(labels, queries + 1, values, 1)
        return tokens, labels
