"""Selective copying: repeat the symbols scattered among noise, in order.

    noise (token 1) with `items` symbols (3 .. symbols + 2) at random positions, then `items` marks (token 2)
    label at the i-th mark: the i-th symbol

Relevant tokens are identified by content, not by position, so a memory must select what to store.  The size counts all
input tokens; longer examples have more noise and the same number of symbols.

    task: {name: selective_copying, items: 8, symbols: 8, train_length: [32, 64], test_length: [64, 256]}

Jing et al. 2019, arXiv:1706.02761; in this form Gu, Dao 2023, arXiv:2312.00752, with 16 items among 4096 tokens.
"""

from dataclasses import dataclass
from math import comb

import numpy as np

from hqlt_lab.errors import ConfigIssue
from hqlt_lab.registry import register
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._generated_task import GeneratedTask

NOISE, MARK, FIRST_SYMBOL = 1, 2, 3


@register("task", "selective_copying")
@dataclass(frozen=True, kw_only=True)
class SelectiveCopying(GeneratedTask):
    train_length: tuple[int, int] = (32, 64)
    """Smallest and largest size in train and short."""
    test_length: tuple[int, int] = (64, 256)
    """Smallest and largest size in test."""
    items: int = 8
    """Number of symbols to remember."""
    symbols: int = 8
    """Number of different symbols."""

    unread_tokens = 0

    def find_option_issues(self) -> list[ConfigIssue]:
        return self.check_minimums({"items": 1, "symbols": 2})

    @property
    def min_size(self) -> int:
        return 2 * self.items

    @property
    def alphabet(self) -> tuple[str, ...]:
        return ("_", ".", "?", *(f"s{number}" for number in range(self.symbols)))

    @property
    def chance_level(self) -> float:
        return 100 / self.symbols

    def count_inputs(self, size: int) -> int:
        return comb(size - self.items, self.items) * self.symbols**self.items

    def write_examples(self, rng: CounterRng, sizes: IntArray, width: int) -> tuple[IntArray, IntArray]:
        symbols = rng.integers("symbol", FIRST_SYMBOL, FIRST_SYMBOL + self.symbols - 1, self.items)
        positions = np.sort(rng.distinct_integers("place", 0, sizes - self.items - 1, self.items), 1)
        marks = sizes - self.items + np.arange(self.items)  # [B, items]
        tokens, labels = np.full((2, len(sizes), width), [[[NOISE]], [[-1]]])
        np.put_along_axis(tokens, positions, symbols, 1)
        np.put_along_axis(tokens, marks, MARK, 1)
        np.put_along_axis(labels, marks, symbols, 1)
        return tokens, labels
