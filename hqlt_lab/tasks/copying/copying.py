"""Copying: repeat a string.

    $ s | s .        letters uniform           labels: the letters of the second s, and the end

A memory of fixed size cannot hold long strings: with fewer than L log2(letters) - 1 bits it errs on more than half of
the strings of length L.

    task: {name: copying, letters: 26, train_length: [5, 20], test_length: [20, 40], packed: 220}

Jelassi et al. 2024, arXiv:2402.01032.
"""

from dataclasses import dataclass

import numpy as np

from hqlt_lab.errors import ConfigIssue
from hqlt_lab.registry import register
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._token_names import name_tokens
from hqlt_lab.tasks.copying._string_task import Strings, StringTask

START, BAR, END, FIRST_LETTER = 1, 2, 3, 4


@register("task", "copying")
@dataclass(frozen=True, kw_only=True)
class Copying(StringTask):
    train_length: tuple[int, int] = (5, 20)
    """Smallest and largest number of letters in train and short."""
    test_length: tuple[int, int] = (20, 40)
    """Smallest and largest number of letters in test."""
    letters: int = 26
    """Number of different letters."""

    min_size = 1

    def find_option_issues(self) -> list[ConfigIssue]:
        return self.check_minimums({"letters": 2, "packed": self.row_sizes(max(self.train_length))[1]})

    @property
    def alphabet(self) -> tuple[str, ...]:
        return name_tokens(("_", "$", "|", "."), ("s", self.letters))

    @property
    def chance_level(self) -> float:
        return 100 / (self.letters + 1)

    def row_sizes(self, size: int) -> tuple[int, int]:
        return 2 * size + 3, 2 * size + 3

    def write_strings(self, rng: CounterRng, sizes: IntArray, longest: int) -> Strings:
        letters = rng.integers("letter", FIRST_LETTER, FIRST_LETTER + self.letters - 1, longest)
        question = np.pad(letters, ((0, 0), (1, 1)), constant_values=START)
        np.put_along_axis(question, sizes[:, None] + 1, BAR, 1)
        answer = np.pad(letters, ((0, 0), (0, 1)))
        np.put_along_axis(answer, sizes[:, None], END, 1)
        return Strings(question, sizes + 2, answer, sizes + 1)
