"""Associative recall: key-value pairs are shown, then the value of every key is queried.

    key value key value ... then `gap` blanks, then slots of two tokens: a key and a blank, or two blanks
    label at each of these keys: its value
    fill: random            each blank is a uniform token instead, which may be a key or a value of the example

Keys are distinct within an example, and so are values.  Each pair is queried once, in slot i with a weight of
i^(power - 1): with a small power most queries follow soon after the pairs, as in language; with 1 they are uniform.
The number of pairs that a memory of fixed size can hold distinguishes fast weights from softmax attention.  The size
counts all input tokens; longer examples have more blanks.

The model needs `short_conv: 4` or so: a key and its value are two tokens, each memory stores what one token writes, and
the convolution brings the two together.  Without it one layer cannot recall, and several have to learn this first.

    task: {name: associative_recall, pairs: 8, keys: 64, values: 64, train_length: [64, 64], test_length: [64, 64]}

Arora et al. 2023, arXiv:2312.04927 (multi-query associative recall, MQAR; there with 4095 keys and 4096 values), and
with random tokens for the blanks Arora et al. 2024, arXiv:2402.18668.
"""

from dataclasses import dataclass, replace
from math import perm
from typing import Any

import numpy as np

from hqlt_lab.errors import ConfigIssue
from hqlt_lab.registry import register
from hqlt_lab.tasks._base import ExtrapolationTest
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._generated_task import GeneratedTask
from hqlt_lab.tasks._length_scoring import geometric_range
from hqlt_lab.tasks._token_names import name_tokens
from hqlt_lab.tasks.recall._query_slots import Fill, count_fillings, draw_slots, find_power_issues, make_filler

BLANK, FIRST_KEY = 1, 2


@register("task", "associative_recall")
@dataclass(frozen=True, kw_only=True)
class AssociativeRecall(GeneratedTask):
    train_length: tuple[int, int] = (64, 64)
    """Smallest and largest size in train and short."""
    test_length: tuple[int, int] = (64, 64)
    """Smallest and largest size in test."""
    pairs: int = 8
    """Number of pairs to remember."""
    keys: int = 64
    """Number of different keys."""
    values: int = 64
    """Number of different values."""
    power: float = 0.01
    """How evenly the queries are spread: 1 is uniform, near 0 most queries come soon after the pairs."""
    gap: int = 0
    """Blanks between the last pair and the first slot."""
    fill: Fill = "blank"
    """Tokens in the gap and in slots without a query: blanks, or random tokens, which may be keys and values."""

    unread_tokens = 0

    def find_option_issues(self) -> list[ConfigIssue]:
        # keys and values are distinct within an example
        issues = self.check_minimums({"pairs": 1, "keys": self.pairs, "values": max(self.pairs, 2), "gap": 0})
        return issues + find_power_issues(self.power)

    @property
    def min_size(self) -> int:
        return 4 * self.pairs + self.gap

    @property
    def alphabet(self) -> tuple[str, ...]:
        return name_tokens(("_", "."), ("k", self.keys), ("v", self.values))

    @property
    def chance_level(self) -> float:
        return 100 / self.values

    def count_inputs(self, size: int) -> int:
        shown = perm(self.keys, self.pairs) * perm(self.values, self.pairs)
        fillings = count_fillings(self.fill, size - 3 * self.pairs, self.vocabulary)
        return shown * perm(self.num_slots(size), self.pairs) * fillings

    def num_slots(self, size: Any) -> Any:
        """Return the number of slots of examples of this size, an integer or an array."""
        return (size - self.gap) // 2 - self.pairs

    def write_examples(self, rng: CounterRng, sizes: IntArray, width: int) -> tuple[IntArray, IntArray]:
        keys = rng.distinct_integers("key", FIRST_KEY, FIRST_KEY + self.keys - 1, self.pairs)
        values = rng.distinct_integers(
            "value", FIRST_KEY + self.keys, FIRST_KEY + self.keys + self.values - 1, self.pairs
        )
        slots = draw_slots(rng, self.num_slots(sizes), self.pairs, self.power)
        query_positions = 2 * self.pairs + self.gap + 2 * slots  # [B, pairs]
        tokens, labels = make_filler(rng, self.fill, width, BLANK, self.vocabulary), np.full((len(sizes), width), -1)
        tokens[:, : 2 * self.pairs] = np.stack([keys, values], 2).reshape(len(sizes), -1)
        np.put_along_axis(tokens, query_positions, keys, 1)
        np.put_along_axis(labels, query_positions, values, 1)
        return tokens, labels

    def extrapolation_tests(self, max_factor: int) -> list[ExtrapolationTest]:
        """Return tests with more pairs in rows of one length, and tests with a larger gap before the queries."""
        longest, max_pairs = self.test_length[1], min(self.keys, self.values, max_factor * self.pairs)
        pair_counts = geometric_range(max_pairs, self.pairs)
        gaps = [self.gap, *(self.gap + factor * longest for factor in geometric_range(max_factor))]
        size = max(longest, 4 * pair_counts[-1] + self.gap)
        more_pairs = [replace(self, pairs=pairs, **single_size_options(size)) for pairs in pair_counts]
        larger_gaps = [replace(self, gap=gap, **single_size_options(longest - self.gap + gap)) for gap in gaps]
        return [ExtrapolationTest("pairs", task.pairs, task) for task in more_pairs] + [
            ExtrapolationTest("gap", task.gap, task) for task in larger_gaps
        ]


def single_size_options(size: int) -> dict[str, Any]:
    """Return options with which all examples of all splits have this size."""
    return {"train_length": (size, size), "test_length": (size, size), "valid_length": None}
