"""Ruler: six tasks on long contexts of the benchmark RULER, with a token per word.

    kind               context, of `train_length` units        unit               question     answer
    niah_single_1      filler, and one pair k v in it          line of 5 tokens   ? k          v
    niah_multikey_2    pairs k v                               pair               ? k          v
    niah_multikey_3    pairs of 4 + 4 digits                   pair               ? digits     4 digits
    vt                 filler, and a chain a v, b a, c b, ...  line of 5 tokens   ? v          the 5 variables a b c d e
    cwe                words, of which 10 are more frequent    different word     ?            the 10 words
    fwe                words; rank k in proportion to 1 / k^2  word               ?            ranks 2, 3 and 4

The answer is given token by token (teacher forcing): the chain in its order, the words of `cwe` by their first place,
those of `fwe` by their rank.  Rank 1 of `fwe` is always the token "...".  Everything is drawn anew in each row.

    task: {name: ruler, kind: niah_multikey_2, train_length: [64, 64], test_length: [256, 256], words: 256}

`hqlt evaluate --ruler` has the same questions as text, for language models.  Hsieh et al. 2024, arXiv:2404.06654.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hqlt_lab.errors import ConfigIssue
from hqlt_lab.registry import register
from hqlt_lab.tasks._base import ExtrapolationTest
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._token_names import name_tokens
from hqlt_lab.tasks.copying._string_task import Strings, StringTask

QUESTION, DOTS, FIRST_FILLER, FIRST_KEY = 1, 2, 3, 8
FILLER_TOKENS = 5  # of a line
DIGITS, CODE_LENGTH = 16, 4
CHAIN_LENGTH = 5
COMMON_WORDS, COMMON_REPEATS = 10, 6
ZETA_2 = 1.6449340668482264  # sum over k of 1 / k^2
UNITS_PER_WORD = 50  # units of `fwe` for each different word
MIN_UNITS = {"niah_single_1": 1, "niah_multikey_2": 1, "niah_multikey_3": 1, "vt": CHAIN_LENGTH, "cwe": 20, "fwe": 250}
# tokens of the question and of the answer
QUESTION_TOKENS = {"niah_multikey_3": 1 + CODE_LENGTH, "cwe": 1, "fwe": 1}
ANSWER_TOKENS = {"niah_multikey_3": CODE_LENGTH, "vt": CHAIN_LENGTH, "cwe": COMMON_WORDS, "fwe": 3}


@register("task", "ruler")
@dataclass(frozen=True, kw_only=True)
class Ruler(StringTask):
    train_length: tuple[int, int] = (48, 48)
    """Smallest and largest number of units in train and short."""
    test_length: tuple[int, int] = (192, 192)
    """Smallest and largest number of units in test."""
    kind: Literal["niah_single_1", "niah_multikey_2", "niah_multikey_3", "vt", "cwe", "fwe"] = "niah_single_1"
    """The task of RULER."""
    words: int = 512
    """Number of different words that are keys, variables or listed, and of values."""

    def find_option_issues(self) -> list[ConfigIssue]:
        issues = self.check_minimums({"words": max(map(self.count_words, (*self.train_length, *self.test_length)))})
        return issues or self.check_minimums({"packed": self.row_sizes(max(self.train_length))[1]})

    def count_words(self, size: int) -> int:
        """Return how many different words a row of this size may need."""
        if self.kind in ("niah_multikey_2", "cwe"):
            return size
        return {"vt": CHAIN_LENGTH, "fwe": len(word_counts(size))}.get(self.kind, 2)

    @property
    def min_size(self) -> int:
        return MIN_UNITS[self.kind]

    @property
    def num_labels(self) -> int:
        return DIGITS if self.kind == "niah_multikey_3" else self.words

    @property
    def alphabet(self) -> tuple[str, ...]:
        fixed = ("_", "?", "...")
        if self.kind == "niah_multikey_3":
            return name_tokens(fixed, ("f", FILLER_TOKENS), ("x", DIGITS))
        num_values = 0 if self.kind in ("cwe", "fwe") else self.words
        return name_tokens(fixed, ("f", FILLER_TOKENS), ("k", self.words), ("v", num_values))

    @property
    def chance_level(self) -> float:
        return 100 / self.num_labels

    def context_tokens(self, size: int) -> int:
        """Return the number of tokens in front of the question."""
        if self.kind == "cwe":
            return size + COMMON_WORDS * (COMMON_REPEATS - 1)
        if self.kind == "fwe":
            return sum(word_counts(size))
        per_unit = {"niah_multikey_2": 2, "niah_multikey_3": 2 * CODE_LENGTH}.get(self.kind, FILLER_TOKENS)
        return per_unit * size + {"niah_single_1": 2, "vt": 2 * CHAIN_LENGTH}.get(self.kind, 0)

    def row_sizes(self, size: int) -> tuple[int, int]:
        tokens = self.context_tokens(size) + QUESTION_TOKENS.get(self.kind, 2) + ANSWER_TOKENS.get(self.kind, 1)
        return tokens, tokens

    def extrapolation_tests(self, max_factor: int) -> list[ExtrapolationTest]:
        longest = self.train_length[1]
        factors = [factor for factor in range(1, max_factor + 1) if self.count_words(longest * factor) <= self.words]
        return super().extrapolation_tests(max(factors))

    def write_strings(self, rng: CounterRng, sizes: IntArray, longest: int) -> Strings:
        write = {
            "niah_single_1": self.write_needle,
            "niah_multikey_2": self.write_pairs,
            "niah_multikey_3": self.write_codes,
            "vt": self.write_chain,
            "cwe": self.write_common_words,
            "fwe": self.write_frequent_words,
        }[self.kind]
        context, question, answer = write(rng, sizes[:, None], longest)
        lengths = np.array([self.context_tokens(size) for size in sizes.tolist()])
        questions = np.pad(context, ((0, 0), (0, question.shape[1])))
        np.put_along_axis(questions, lengths[:, None] + np.arange(question.shape[1]), question, 1)
        return Strings(questions, lengths + question.shape[1], answer, np.full(len(sizes), answer.shape[1]))

    def write_needle(self, rng: CounterRng, sizes: IntArray, longest: int) -> tuple[IntArray, IntArray, IntArray]:
        pair = np.stack([self.draw_keys(rng, 1), self.draw_values(rng, 1)], 2)  # [B, 1, 2]
        context = insert_pairs(rng.integers("place", 0, sizes - 1), pair, longest)
        return context, ask(pair[:, 0, :1]), pair[:, 0, 1:]

    def write_pairs(self, rng: CounterRng, sizes: IntArray, longest: int) -> tuple[IntArray, IntArray, IntArray]:
        pairs = np.stack([self.draw_keys(rng, longest), self.draw_values(rng, longest)], 2)  # [B, N, 2]
        asked = np.take_along_axis(pairs, rng.integers("asked", 0, sizes - 1)[:, :, None], 1)[:, 0]
        return pairs.reshape(len(pairs), -1), ask(asked[:, :1]), asked[:, 1:]

    def write_codes(self, rng: CounterRng, sizes: IntArray, longest: int) -> tuple[IntArray, IntArray, IntArray]:
        num_codes = DIGITS**CODE_LENGTH
        keys = rng.distinct_integers("key", 0, num_codes - 1, longest)
        values = rng.integers("value", 0, num_codes - 1, longest)
        digits = np.stack([keys, values], 2)[..., None] // DIGITS ** np.arange(CODE_LENGTH) % DIGITS  # [B, N, 2, 4]
        asked = np.take_along_axis(digits, rng.integers("asked", 0, sizes - 1)[:, :, None, None], 1)[:, 0]
        context = FIRST_KEY + digits.reshape(len(digits), -1)
        return context, ask(FIRST_KEY + asked[:, 0]), FIRST_KEY + asked[:, 1]

    def write_chain(self, rng: CounterRng, sizes: IntArray, longest: int) -> tuple[IntArray, IntArray, IntArray]:
        variables, value = self.draw_keys(rng, CHAIN_LENGTH), self.draw_values(rng, 1)
        sources = np.concatenate([value, variables[:, :-1]], 1)
        places = np.sort(rng.distinct_integers("place", 0, sizes - 1, CHAIN_LENGTH), 1)
        context = insert_pairs(places, np.stack([variables, sources], 2), longest)
        return context, ask(value), variables

    def write_common_words(self, rng: CounterRng, sizes: IntArray, longest: int) -> tuple[IntArray, IntArray, IntArray]:
        words = self.draw_keys(rng, longest)
        common = words[:, :COMMON_WORDS]
        listed = np.concatenate([np.tile(common, (1, COMMON_REPEATS)), words[:, COMMON_WORDS:]], 1)
        is_listed = np.arange(listed.shape[1]) < sizes + COMMON_WORDS * (COMMON_REPEATS - 1)
        context = shuffle_listed(rng, listed, is_listed)
        first_places = (context[:, :, None] == common[:, None]).argmax(1)  # [B, 10]
        return context, ask(common[:, :0]), np.take_along_axis(common, first_places.argsort(1), 1)

    def write_frequent_words(
        self, rng: CounterRng, sizes: IntArray, longest: int
    ) -> tuple[IntArray, IntArray, IntArray]:
        ranked = self.draw_keys(rng, len(word_counts(longest)))
        ranked[:, 0] = DOTS
        listed = np.zeros((len(sizes), self.context_tokens(longest)), dtype=np.int64)
        for row, size in enumerate(sizes[:, 0].tolist()):
            counts = word_counts(size)
            listed[row, : sum(counts)] = np.repeat(ranked[row, : len(counts)], counts)
        return shuffle_listed(rng, listed, listed > 0), ask(ranked[:, :0]), ranked[:, 1:4]

    def draw_keys(self, rng: CounterRng, count: int) -> IntArray:
        """Return different keys, [B, count]."""
        return FIRST_KEY + rng.permutations("key", self.words)[:, :count]

    def draw_values(self, rng: CounterRng, count: int) -> IntArray:
        return FIRST_KEY + self.words + rng.integers("value", 0, self.words - 1, count)


@lru_cache(1024)
def word_counts(size: int) -> tuple[int, ...]:
    """Return how often the word of each rank occurs in `fwe`; words that do not occur are left out."""
    counts = (int(size / rank**2 / ZETA_2) for rank in range(1, size // UNITS_PER_WORD + 1))
    return tuple(count for count in counts if count)


def insert_pairs(places: IntArray, pairs: IntArray, lines: int) -> IntArray:
    """Return lines of filler with pairs [B, N, 2] before the lines at these places [B, N], which ascend."""
    count = pairs.shape[1]
    starts = FILLER_TOKENS * places + 2 * np.arange(count)
    columns = np.arange(FILLER_TOKENS * lines + 2 * count)
    num_before = (starts[:, :, None] < columns).sum(1)  # [B, T] pairs that begin before a column
    context = FIRST_FILLER + (columns - 2 * num_before) % FILLER_TOKENS
    for offset in range(2):
        np.put_along_axis(context, starts + offset, pairs[:, :, offset], 1)
    return context


def shuffle_listed(rng: CounterRng, listed: IntArray, is_listed: NDArray[np.bool_]) -> IntArray:
    """Return the listed tokens of each row in random order, and all others behind them."""
    preference = rng.uniform("order", listed.shape[1])
    return np.take_along_axis(listed, np.where(is_listed, preference, 2.0).argsort(1, kind="stable"), 1)


def ask(subject: IntArray) -> IntArray:
    """Return the question about a subject [B, N], which may be empty."""
    return np.pad(subject, ((0, 0), (1, 0)), constant_values=QUESTION)
