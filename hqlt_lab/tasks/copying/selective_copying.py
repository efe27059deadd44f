"""Selective copying: repeat the symbols scattered among noise, in order.

    noise (token 1) with `items` symbols (3 .. symbols + 2) at random positions, then `items` marks (token 2)
    label at the i-th mark: the i-th symbol

    noise_at: before_symbols      each noise token is in front of a uniformly drawn symbol, so that the last symbol is
                                  right before the marks
    marks: one                    one mark, and then `items` noise tokens with the labels

Relevant tokens are identified by content, not by position, so a memory must select what to store.  The size counts all
input tokens; longer examples have more noise and the same number of symbols.

    task: {name: selective_copying, items: 8, symbols: 8, train_length: [32, 64], test_length: [64, 256]}
    task: {name: selective_copying, items: 16, symbols: 14, noise_at: before_symbols, marks: one, ...}     as in MAD

Jing et al. 2019, arXiv:1706.02761; in this form Gu, Dao 2023, arXiv:2312.00752, with 16 items among 4096 tokens.
The variant with one mark is that of Poli et al. 2024, arXiv:2403.17844 (MAD).
"""

from dataclasses import dataclass
from math import comb
from typing import Literal

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
    noise_at: Literal["uniform", "before_symbols"] = "uniform"
    """Whether all positions of the symbols are equally likely, or each noise token is in front of a random symbol."""
    marks: Literal["each", "one"] = "each"
    """Whether each label is at a mark, or one mark is followed by noise with the labels."""

    unread_tokens = 0
    has_macro_accuracy = True

    def find_option_issues(self) -> list[ConfigIssue]:
        return self.check_minimums({"items": 1, "symbols": 2})

    @property
    def min_size(self) -> int:
        return 2 * self.items + self.end_marks

    @property
    def end_marks(self) -> int:
        """Number of marks that have no label."""
        return int(self.marks == "one")

    @property
    def alphabet(self) -> tuple[str, ...]:
        return ("_", ".", "?", *(f"s{number}" for number in range(self.symbols)))

    @property
    def chance_level(self) -> float:
        return 100 / self.symbols

    def count_inputs(self, size: int) -> int:
        last = int(self.noise_at == "before_symbols")  # the position of the last symbol is fixed
        region = size - self.items - self.end_marks
        return comb(region - last, self.items - last) * self.symbols**self.items

    def write_examples(self, rng: CounterRng, sizes: IntArray, width: int) -> tuple[IntArray, IntArray]:
        symbols = rng.integers("symbol", FIRST_SYMBOL, FIRST_SYMBOL + self.symbols - 1, self.items)
        region = sizes - self.items - self.end_marks  # [B, 1] number of symbols and noise tokens in front of the marks
        positions = self.draw_positions(rng, region)
        marks = sizes - self.items + np.arange(self.items)  # [B, items]
        tokens, labels = np.full((2, len(sizes), width), [[[NOISE]], [[-1]]])
        np.put_along_axis(tokens, positions, symbols, 1)
        if self.marks == "one":
            np.put_along_axis(tokens, region, MARK, 1)
        else:
            np.put_along_axis(tokens, marks, MARK, 1)
        np.put_along_axis(labels, marks, symbols, 1)
        return tokens, labels

    def draw_positions(self, rng: CounterRng, region: IntArray) -> IntArray:
        """Draw the increasing positions of the symbols, [B, items]."""
        if self.noise_at == "uniform":
            return np.sort(rng.distinct_integers("place", 0, region - 1, self.items), 1)
        num_noise = region - self.items
        symbol = rng.integers("before", 0, self.items - 1, int(num_noise.max()))  # the symbol behind each noise token
        is_noise = np.arange(symbol.shape[1]) < num_noise
        gaps = np.stack([((symbol == item) & is_noise).sum(1) for item in range(self.items)], 1)
        return gaps.cumsum(1) + np.arange(self.items)
