"""Selective copying: repeat in order what was scattered among noise.

    noise (token 1) with `items` symbols (3 .. symbols + 2) at random places, then `items` marks (token 2)
    answer at the i-th mark: the i-th symbol

What matters is known by content, not by place, so that a memory must choose what it keeps.  The size counts all tokens
that are read; with more of them there is more noise, and as much to remember.

    task: {name: selective_copying, items: 8, symbols: 8, train_length: [32, 64], test_length: [64, 256]}

Jing et al. 2019, arXiv:1706.02761; in this form Gu, Dao 2023, arXiv:2312.00752, with 16 items among 4096 tokens.
"""

from dataclasses import dataclass
from math import comb

import numpy as np

from hqlt_lab.registry import register
from hqlt_lab.tasks._counter import Draws, Ints
from hqlt_lab.tasks._generated import Generated

NOISE, MARK, FIRST = 1, 2, 3


@register("task", "selective_copying")
@dataclass(frozen=True, kw_only=True)
class SelectiveCopying(Generated):
    train_length: tuple[int, int] = (32, 64)
    """The shortest and the longest size in train and short."""
    test_length: tuple[int, int] = (64, 256)
    """The same in test."""
    items: int = 8
    """Symbols to remember."""
    symbols: int = 8
    """Different symbols there are."""

    unread = 0

    def mistakes(self) -> list[str]:
        return self.too_small({"items": 1, "symbols": 2})

    @property
    def shortest(self) -> int:
        return 2 * self.items

    @property
    def alphabet(self) -> tuple[str, ...]:
        return ("_", ".", "?", *(f"s{number}" for number in range(self.symbols)))

    @property
    def chance(self) -> float:
        return 100 / self.symbols

    def variety(self, size: int) -> int:
        return comb(size - self.items, self.items) * self.symbols**self.items

    def write(self, draws: Draws, sizes: Ints, width: int) -> tuple[Ints, Ints]:
        symbols = draws.integers("symbol", FIRST, FIRST + self.symbols - 1, self.items)
        places = np.sort(draws.distinct("place", 0, sizes - self.items - 1, self.items), 1)
        marks = sizes - self.items + np.arange(self.items)  # [B, items]
        tokens, labels = np.full((2, len(sizes), width), [[[NOISE]], [[-1]]])
        np.put_along_axis(tokens, places, symbols, 1)
        np.put_along_axis(tokens, marks, MARK, 1)
        np.put_along_axis(labels, marks, symbols, 1)
        return tokens, labels
