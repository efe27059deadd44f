"""Fuzzy recall: in_context_recall in which keys and values have one to three tokens, without separators.

    filler ... key value key value ... probe       label at each token before a token of a value whose key was shown
                                                   before; the probe is a pair that was shown before

Keys and values are distinct tokens of their own kinds; their lengths are uniform from 1 to `key_length` and to
`value_length`.  Test keys always have `key_length` tokens.  A key has the same value throughout its row.  The pairs
fill the row from the right, and fillers are in front.  The size counts the input tokens: all of these but the last.

    task: {name: fuzzy_recall, keys: 7, values: 8, train_length: [128, 128], test_length: [128, 128]}

Poli et al. 2024, arXiv:2403.17844 (MAD), where the probe is not shown before in 2.6 % of the test rows by mistake, and
training has the next token as label everywhere (`targets: all_next`).
"""

from dataclasses import dataclass

import numpy as np

from hqlt_lab.errors import ConfigIssue
from hqlt_lab.registry import register
from hqlt_lab.tasks._base import Split
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._generated_task import ExampleArrays, GeneratedTask
from hqlt_lab.tasks._token_names import name_tokens

FILLER, FIRST_KEY = 1, 2


@register("task", "fuzzy_recall")
@dataclass(frozen=True, kw_only=True)
class FuzzyRecall(GeneratedTask):
    train_length: tuple[int, int] = (128, 128)
    """Smallest and largest size in train and short."""
    test_length: tuple[int, int] = (128, 128)
    """Smallest and largest size in test."""
    keys: int = 7
    """Number of different tokens of keys."""
    values: int = 8
    """Number of different tokens of values."""
    key_length: int = 3
    """Tokens of the longest keys."""
    value_length: int = 3
    """Tokens of the longest values."""

    unread_tokens = 0
    has_macro_accuracy = True

    def find_option_issues(self) -> list[ConfigIssue]:
        minimums = {"key_length": 1, "value_length": 1, "keys": self.key_length, "values": max(2, self.value_length)}
        return self.check_minimums(minimums)

    @property
    def pair_length(self) -> int:
        """Number of tokens of the longest pairs."""
        return self.key_length + self.value_length

    @property
    def min_size(self) -> int:
        return 2 * self.pair_length

    @property
    def alphabet(self) -> tuple[str, ...]:
        return name_tokens(("_", "."), ("k", self.keys), ("v", self.values))

    @property
    def chance_level(self) -> float:
        return 100 / self.values

    def count_inputs(self, size: int) -> int:
        return (self.vocabulary - 1) ** size  # an upper bound

    def generate_rows(self, split: Split, seed: int, numbers: IntArray, stream_suffix: str = "") -> ExampleArrays:
        rng, width = self._make_rng(split, seed, numbers, stream_suffix), self.sequence_length(split)
        sizes = self.draw_sizes(rng, *self._requested_ranges()[split])
        key_lengths = (1 if split in ("train", "short") else self.key_length, self.key_length)
        tokens, is_answer = self.write_pairs(rng, sizes, width, key_lengths)
        valid_mask = np.arange(width) < sizes
        labels = np.where(is_answer[:, 1:] & valid_mask, tokens[:, 1:], -1)
        arrays = ExampleArrays(np.where(valid_mask, tokens[:, :-1], 0), labels, sizes[:, 0])
        return self.select_labels(arrays, split)

    def write_pairs(
        self, rng: CounterRng, sizes: IntArray, width: int, key_lengths: tuple[int, int]
    ) -> tuple[IntArray, IntArray]:
        """Return rows of one more token than the input, and which tokens belong to a known value [B, width + 1]."""
        count, room, num_pairs = len(sizes), sizes + 1, (width + 1) // (key_lengths[0] + 1)
        rows = np.arange(count)[:, None]
        key = distinct_tokens(rng, "key", num_pairs, self.keys, self.key_length)
        value = distinct_tokens(rng, "value", num_pairs, self.values, self.value_length)
        key_size = rng.integers("key length", *key_lengths, num_pairs)
        value_size = rng.integers("value length", 1, self.value_length, num_pairs)
        key = np.where(np.arange(self.key_length) < key_size[:, :, None], FIRST_KEY + key, 0)  # [B, pairs, length]
        codes = key @ (self.keys + FIRST_KEY) ** np.arange(self.key_length)
        first = (codes[:, :, None] == codes[:, None, :]).argmax(2)  # [B, pairs] the first pair with the same key
        value, value_size = value[rows, first], value_size[rows, first]

        ends = (key_size + value_size).cumsum(1)
        # the probe is among the pairs that fit with any probe behind them
        probe = rng.integers("probe", 0, (ends <= room - self.pair_length).sum(1, keepdims=True) - 1)
        probe_size = np.take_along_axis(key_size + value_size, probe, 1)
        num_shown = (ends <= room - probe_size).sum(1, keepdims=True)
        start = room - probe_size - np.take_along_axis(ends, num_shown - 1, 1)  # number of fillers

        tokens = np.full((count, width + 2), FILLER)  # the last column takes what is not shown
        is_answer = np.zeros((count, width + 2), dtype=bool)
        order = np.concatenate([np.tile(np.arange(num_pairs), (count, 1)), probe], 1)
        starts = np.concatenate([start + ends - key_size - value_size, room - probe_size], 1)
        is_shown = np.concatenate([np.arange(num_pairs) < num_shown, np.ones((count, 1), dtype=bool)], 1)
        is_known = np.concatenate([first < np.arange(num_pairs), np.ones((count, 1), dtype=bool)], 1)
        key_size, value_size = key_size[rows, order], value_size[rows, order]
        for offset in range(self.key_length):
            column = np.where(is_shown & (offset < key_size), starts + offset, width + 1)
            tokens[rows, column] = key[rows, order, offset]
        for offset in range(self.value_length):
            column = np.where(is_shown & (offset < value_size), starts + key_size + offset, width + 1)
            tokens[rows, column] = FIRST_KEY + self.keys + value[rows, order, offset]
            is_answer[rows, column] = is_known
        return tokens[:, :-1], is_answer[:, :-1]


def distinct_tokens(rng: CounterRng, name: str, sequences: int, choices: int, length: int) -> IntArray:
    """Return sequences of distinct numbers below `choices`, [B, sequences, length]."""
    words = rng.random_bits(name, sequences * choices)
    return words.reshape(-1, sequences, choices).argsort(2, kind="stable")[:, :, :length]
