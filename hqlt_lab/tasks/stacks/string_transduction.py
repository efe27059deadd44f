"""String transduction: write this string reversed, twice, in another order or sorted.

    symbols, uniform; then as many marks as the output has symbols        label at the i-th mark: its i-th symbol

    operation: reverse       a b c d -> d c b a
    operation: duplicate     a b c d -> a b c d a b c d
    operation: odds_first    a b c d -> a c b d           the symbols at odd positions, then the others
    operation: sort          c a d a -> a a c d

Reversing needs a stack; duplicating and reordering need a tape.

    task: {name: string_transduction, operation: reverse, symbols: 2, train_length: [1, 40], test_length: [41, 80]}

Deletang et al. 2022, arXiv:2207.02098 (reverse string, duplicate string, odds first, bucket sort with 5 symbols).
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hqlt_lab.errors import ConfigIssue
from hqlt_lab.registry import register
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._token_names import name_tokens
from hqlt_lab.tasks.stacks._transduction_task import TransductionTask

FIRST_SYMBOL = 2


@register("task", "string_transduction")
@dataclass(frozen=True, kw_only=True)
class StringTransduction(TransductionTask):
    train_length: tuple[int, int] = (1, 40)
    """Smallest and largest number of symbols in train and short."""
    test_length: tuple[int, int] = (41, 80)
    """Smallest and largest number of symbols in test."""
    operation: Literal["reverse", "duplicate", "odds_first", "sort"] = "reverse"
    """What is done with the string."""
    symbols: int = 2
    """Number of different symbols."""

    min_size = 1

    def find_option_issues(self) -> list[ConfigIssue]:
        return self.check_minimums({"symbols": 2})

    @property
    def alphabet(self) -> tuple[str, ...]:
        return name_tokens(("_", "?"), ("s", self.symbols))

    @property
    def chance_level(self) -> float:
        return 100 / self.symbols

    def output_size(self, size: Any) -> Any:
        return 2 * size if self.operation == "duplicate" else size

    def count_inputs(self, size: int) -> int:
        return int(self.symbols ** (size // (3 if self.operation == "duplicate" else 2)))

    def write_output(self, rng: CounterRng, sizes: IntArray, longest: int) -> tuple[IntArray, IntArray]:
        symbols = rng.integers("symbol", FIRST_SYMBOL, FIRST_SYMBOL + self.symbols - 1, longest)
        position = np.arange(self.output_size(longest))
        if self.operation == "sort":
            behind = np.arange(longest) >= sizes
            return symbols, np.sort(np.where(behind, FIRST_SYMBOL + self.symbols, symbols), 1)
        if self.operation == "duplicate":
            source = position % sizes
        elif self.operation == "reverse":
            source = sizes - 1 - position
        else:
            num_odd = (sizes + 1) // 2  # positions count from 1
            source = np.where(position < num_odd, 2 * position, 2 * (position - num_odd) + 1)
        return symbols, np.take_along_axis(symbols, np.clip(source, 0, longest - 1), 1)
