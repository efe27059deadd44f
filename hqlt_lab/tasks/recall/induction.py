"""Induction: which token followed the special token at its first occurrence?

    tokens 2 .. symbols + 1, uniform; token 1 once among them and once more at the end    label: the token after it

Content-based copying from one position, which a single induction head can do.  The size counts the input tokens.

    task: {name: induction, symbols: 16, train_length: [16, 64], test_length: [64, 256]}

Olsson et al. 2022, arXiv:2209.11895; in this form Gu, Dao 2023, arXiv:2312.00752, trained at
length 256 and tested at much longer ones.
"""

from dataclasses import dataclass

import numpy as np

from hqlt_lab.errors import ConfigIssue
from hqlt_lab.registry import register
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._generated_task import GeneratedTask

SPECIAL = 1


@register("task", "induction")
@dataclass(frozen=True, kw_only=True)
class Induction(GeneratedTask):
    train_length: tuple[int, int] = (16, 64)
    """Smallest and largest size in train and short."""
    test_length: tuple[int, int] = (64, 256)
    """Smallest and largest size in test."""
    symbols: int = 16
    """Number of different tokens besides the special one."""

    min_size = 3
    unread_tokens = 0

    def find_option_issues(self) -> list[ConfigIssue]:
        return self.check_minimums({"symbols": 2})

    @property
    def alphabet(self) -> tuple[str, ...]:
        return ("_", "?", *(f"s{number}" for number in range(self.symbols)))

    @property
    def chance_level(self) -> float:
        return 100 / self.symbols

    def count_inputs(self, size: int) -> int:
        return (size - 2) * self.symbols ** (size - 2)

    def write_examples(self, rng: CounterRng, sizes: IntArray, width: int) -> tuple[IntArray, IntArray]:
        tokens = rng.integers("symbol", 2, 1 + self.symbols, width)
        position, end = rng.integers("place", 0, sizes - 3), sizes - 1  # [B, 1]
        np.put_along_axis(tokens, np.concatenate([position, end], 1), SPECIAL, 1)
        label = np.take_along_axis(tokens, position + 1, 1)
        return tokens, np.where(np.arange(width) == end, label, -1)
