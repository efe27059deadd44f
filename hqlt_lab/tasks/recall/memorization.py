"""Memorization: which value belongs to this key, in a table that is the same for all rows?

    key mark key mark ...        keys uniform with repetition               label at each mark: the value of the key

The table is a random one-to-one map.  It is not in the input, so a model has to store it in its weights.  All splits
use the same table, which depends on `map_seed` only.  The size counts the input tokens and is even.

    task: {name: memorization, keys: 127, rows: 256, train_length: [32, 32], test_length: [32, 32]}

Poli et al. 2024, arXiv:2403.17844 (MAD).
"""

from dataclasses import dataclass

import numpy as np

from hqlt_lab.errors import ConfigIssue
from hqlt_lab.registry import register
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._generated_task import GeneratedTask
from hqlt_lab.tasks._token_names import name_tokens

MARK, FIRST_KEY = 1, 2


@register("task", "memorization")
@dataclass(frozen=True, kw_only=True)
class Memorization(GeneratedTask):
    train_length: tuple[int, int] = (32, 32)
    """Smallest and largest size in train and short."""
    test_length: tuple[int, int] = (32, 32)
    """Smallest and largest size in test."""
    keys: int = 127
    """Number of different keys, and of different values."""
    map_seed: int = 0
    """Selects the table."""

    unread_tokens = 0
    has_macro_accuracy = True

    def find_option_issues(self) -> list[ConfigIssue]:
        return self.check_minimums({"keys": 2})

    @property
    def alphabet(self) -> tuple[str, ...]:
        return name_tokens(("_", "?"), ("k", self.keys), ("v", self.keys))

    @property
    def chance_level(self) -> float:
        return 100 / self.keys

    @property
    def table(self) -> IntArray:
        """Number of the value of each key."""
        return CounterRng(f"Memorization/table/{self.map_seed}", 0, 1).permutations("values", self.keys)[0]

    def count_inputs(self, size: int) -> int:
        return self.keys ** (size // 2)

    def size_range(self, low: int, high: int) -> tuple[int, int]:
        return low // 2 * 2, high // 2 * 2

    def draw_sizes(self, rng: CounterRng, low: int, high: int) -> IntArray:
        return 2 * rng.integers("size", low // 2, high // 2)

    def write_examples(self, rng: CounterRng, sizes: IntArray, width: int) -> tuple[IntArray, IntArray]:
        key = rng.integers("key", 0, self.keys - 1, width // 2)
        tokens, labels = np.full((2, len(sizes), width), [[[MARK]], [[-1]]])
        tokens[:, ::2] = FIRST_KEY + key
        labels[:, 1::2] = FIRST_KEY + self.keys + self.table[key]
        return tokens, labels
