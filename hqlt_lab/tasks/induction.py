"""Induction: what followed the special token the last time?

    tokens 2 .. symbols + 1, uniform; token 1 once among them and once more at the end      answer: what followed it

Copying by content from one place, which a single induction head does.  The size counts the tokens that are read.

    task: {name: induction, symbols: 16, train_length: [16, 64], test_length: [64, 256]}

Olsson et al. 2022, arXiv:2209.11895; in this form Gu, Dao 2023, arXiv:2312.00752, trained at 256 and tested far beyond.
"""

from dataclasses import dataclass

import numpy as np

from hqlt_lab.registry import register
from hqlt_lab.tasks._counter import Draws, Ints
from hqlt_lab.tasks._generated import Generated

SPECIAL = 1


@register("task", "induction")
@dataclass(frozen=True, kw_only=True)
class Induction(Generated):
    train_length: tuple[int, int] = (16, 64)
    """The shortest and the longest size in train and short."""
    test_length: tuple[int, int] = (64, 256)
    """The same in test."""
    symbols: int = 16
    """Different tokens besides the special one."""

    shortest = 3
    unread = 0

    def mistakes(self) -> list[str]:
        return self.too_small({"symbols": 2})

    @property
    def alphabet(self) -> tuple[str, ...]:
        return ("_", "?", *(f"s{number}" for number in range(self.symbols)))

    @property
    def chance(self) -> float:
        return 100 / self.symbols

    def variety(self, size: int) -> int:
        return (size - 2) * self.symbols ** (size - 2)

    def write(self, draws: Draws, sizes: Ints, width: int) -> tuple[Ints, Ints]:
        tokens = draws.integers("symbol", 2, 1 + self.symbols, width)
        place, end = draws.integers("place", 0, sizes - 3), sizes - 1  # [B, 1]
        np.put_along_axis(tokens, np.concatenate([place, end], 1), SPECIAL, 1)
        answer = np.take_along_axis(tokens, place + 1, 1)
        return tokens, np.where(np.arange(width) == end, answer, -1)
