"""Ngram lookup: repeat what follows a part of a string.

    query: first       $ g | s | what follows g in s .
    query: last        $ s | g what follows g in s .

The query g is `length` letters of s, uniform among those that occur once in it and are not at its end.  A memory of
fixed size can look for a query that comes first, and has to store the whole string for one that comes last.

    task: {name: ngram_lookup, length: 3, query: last, train_length: [10, 20], test_length: [30, 40]}

Jelassi et al. 2024, arXiv:2402.01032 (prefix and suffix n-gram), where the query may occur twice by mistake.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from hqlt_lab.errors import ConfigIssue
from hqlt_lab.registry import register
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._token_names import name_tokens
from hqlt_lab.tasks.copying._string_task import Strings, StringTask

START, BAR, END, FIRST_LETTER = 1, 2, 3, 4


@register("task", "ngram_lookup")
@dataclass(frozen=True, kw_only=True)
class NgramLookup(StringTask):
    train_length: tuple[int, int] = (10, 20)
    """Smallest and largest number of letters in train and short."""
    test_length: tuple[int, int] = (30, 40)
    """Smallest and largest number of letters in test."""
    letters: int = 26
    """Number of different letters."""
    length: int = 3
    """Number of letters of the query."""
    query: Literal["first", "last"] = "last"
    """Whether the query is in front of the string or behind it."""

    def find_option_issues(self) -> list[ConfigIssue]:
        return self.check_minimums({"letters": 2, "length": 1, "packed": self.row_sizes(max(self.train_length))[1]})

    @property
    def min_size(self) -> int:
        return self.length + 1

    @property
    def alphabet(self) -> tuple[str, ...]:
        return name_tokens(("_", "$", "|", "."), ("s", self.letters))

    @property
    def chance_level(self) -> float:
        return 100 / (self.letters + 1)

    def row_sizes(self, size: int) -> tuple[int, int]:
        question_size = size + self.length + (4 if self.query == "first" else 3)
        return question_size + 1, question_size + size - self.length

    def write_strings(self, rng: CounterRng, sizes: IntArray, longest: int) -> Strings:
        letters = rng.integers("letter", FIRST_LETTER, FIRST_LETTER + self.letters - 1, longest)
        start = self.draw_starts(rng, letters, sizes)[:, None]  # of the query
        query = np.take_along_axis(letters, start + np.arange(self.length), 1)
        answer_index = np.minimum(start + self.length + np.arange(longest - self.length + 1), longest - 1)
        answer = np.take_along_axis(letters, answer_index, 1)
        answer_lengths = sizes - start[:, 0] - self.length
        np.put_along_axis(answer, answer_lengths[:, None], END, 1)
        bar = np.full((len(sizes), 1), BAR)
        string = np.pad(letters, ((0, 0), (0, 1)))
        np.put_along_axis(string, sizes[:, None], BAR, 1)  # a string and the bar behind it
        if self.query == "first":
            question = np.concatenate([bar - BAR + START, query, bar, string], 1)
            return Strings(question, sizes + self.length + 3, answer, answer_lengths + 1)
        question = np.concatenate([bar - BAR + START, string, np.zeros_like(query)], 1)
        np.put_along_axis(question, sizes[:, None] + 2 + np.arange(self.length), query, 1)
        return Strings(question, sizes + self.length + 2, answer, answer_lengths + 1)

    def draw_starts(self, rng: CounterRng, letters: IntArray, sizes: IntArray) -> IntArray:
        """Draw the first position of the query in each string; if all parts occur twice, the first one is it."""
        positions = np.arange(letters.shape[1] - self.length)
        codes = np.zeros((len(letters), letters.shape[1] - self.length + 1), dtype=np.int64)
        for offset in range(self.length):
            codes = codes * (self.letters + FIRST_LETTER) + letters[:, offset : offset + codes.shape[1]]
        is_part = np.arange(codes.shape[1]) <= (sizes - self.length)[:, None]  # inside of the string
        codes = np.where(is_part, codes, -1 - np.arange(codes.shape[1]))
        is_repeated = (codes[:, :, None] == codes[:, None, :]).sum(2) > 1
        is_possible = (positions < (sizes - self.length)[:, None]) & ~is_repeated[:, :-1]
        preference = rng.uniform("query", len(positions))
        return np.where(is_possible, preference, -positions / len(positions)).argmax(1)
