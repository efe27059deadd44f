"""Dyck: which bracket closes the one that was opened last?

    brackets of several types, properly nested        label at each token before a closing bracket: its type

Each bracket opens with probability 1/2.  It must open if none is open, and must close at the largest depth, or if the
rest of the row is needed to close all of them.  Types are uniform.  With one type a counter is enough, with several a
stack is needed.  The size counts all brackets, of which the last is not read, and is even.

    task: {name: dyck, types: 4, depth: 8, train_length: [2, 40], test_length: [40, 256]}

Suzgun et al. 2019, arXiv:1911.03329; Hewitt et al. 2020, arXiv:2010.07515 (bounded depth).
"""

from dataclasses import dataclass

import numpy as np

from hqlt_lab.errors import ConfigIssue
from hqlt_lab.registry import register
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._generated_task import GeneratedTask
from hqlt_lab.tasks._token_names import name_tokens

FIRST_OPEN = 1


@register("task", "dyck")
@dataclass(frozen=True, kw_only=True)
class Dyck(GeneratedTask):
    train_length: tuple[int, int] = (2, 40)
    """Smallest and largest size in train and short."""
    test_length: tuple[int, int] = (40, 256)
    """Smallest and largest size in test."""
    types: int = 4
    """Number of types of brackets."""
    depth: int = 8
    """Largest number of open brackets."""

    has_sequence_accuracy = True

    def find_option_issues(self) -> list[ConfigIssue]:
        return self.check_minimums({"types": 2, "depth": 1})

    @property
    def alphabet(self) -> tuple[str, ...]:
        return name_tokens(("_",), ("(", self.types), (")", self.types))

    @property
    def chance_level(self) -> float:
        return 100 / self.types

    def count_inputs(self, size: int) -> int:
        paths = {0: 1}  # number of ways to each depth
        for _ in range(size):
            longer: dict[int, int] = {}
            for depth, count in paths.items():
                for next_depth in (depth - 1, depth + 1):
                    if 0 <= next_depth <= self.depth:
                        longer[next_depth] = longer.get(next_depth, 0) + count
            paths = longer
        return paths[0] * self.types ** (size // 2)

    def size_range(self, low: int, high: int) -> tuple[int, int]:
        return (low + 1) // 2 * 2, high // 2 * 2

    def draw_sizes(self, rng: CounterRng, low: int, high: int) -> IntArray:
        return 2 * rng.integers("size", (low + 1) // 2, high // 2)

    def write_examples(self, rng: CounterRng, sizes: IntArray, width: int) -> tuple[IntArray, IntArray]:
        count, rows = len(sizes), np.arange(len(sizes))
        opens = rng.uniform("opens", width + 1) < 0.5
        types = rng.integers("type", 0, self.types - 1, width + 1)
        stack, depth = np.zeros((count, self.depth + 1), dtype=np.int64), np.zeros(count, dtype=np.int64)
        tokens, closing = np.zeros((2, count, width + 1), dtype=np.int64)
        for column in range(width + 1):
            remaining = sizes[:, 0] - column
            is_open = (opens[:, column] | (depth == 0)) & (depth < self.depth) & (depth < remaining)
            stack[rows, depth] = np.where(is_open, types[:, column], stack[rows, depth])
            top = stack[rows, np.maximum(depth - 1, 0)]
            tokens[:, column] = FIRST_OPEN + np.where(is_open, types[:, column], self.types + top)
            closing[:, column] = ~is_open
            depth = np.clip(depth + np.where(is_open, 1, -1), 0, self.depth)
        return tokens[:, :-1], np.where(closing[:, 1:] > 0, tokens[:, 1:], -1)
