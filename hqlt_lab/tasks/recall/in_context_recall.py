"""In context recall: what followed this key at its earlier showings?

    key value key value ... key          keys with repetition; a key has the same value throughout its row
    label at each key that was shown before: its value; the last key always was

Keys are uniform, and so is the value of each key; two keys may have the same value.  The last key is uniform among
those shown before it.  With `noise: 0.2` each pair but the last, and but one at random, is replaced by two noise tokens
with this probability.  The size counts the input tokens and is odd.

    task: {name: in_context_recall, keys: 8, noise: 0.2, train_length: [127, 127], test_length: [127, 127]}

Poli et al. 2024, arXiv:2403.17844 (MAD), where training has the next token as label everywhere (`targets: all_next`).
"""

from dataclasses import dataclass

import numpy as np

from hqlt_lab.errors import ConfigIssue
from hqlt_lab.registry import register
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._generated_task import GeneratedTask
from hqlt_lab.tasks._token_names import name_tokens

FIRST_KEY = 1


@register("task", "in_context_recall")
@dataclass(frozen=True, kw_only=True)
class InContextRecall(GeneratedTask):
    train_length: tuple[int, int] = (127, 127)
    """Smallest and largest size in train and short."""
    test_length: tuple[int, int] = (127, 127)
    """Smallest and largest size in test."""
    keys: int = 8
    """Number of different keys."""
    values: int | None = None
    """Number of different values; null: as many as keys."""
    noise: float = 0.0
    """Probability that a pair is replaced by two noise tokens."""
    noise_tokens: int = 16
    """Number of different noise tokens."""

    unread_tokens = 0
    min_size = 5
    has_macro_accuracy = True

    def find_option_issues(self) -> list[ConfigIssue]:
        issues = self.check_minimums({"keys": 2, "values": 2, "noise_tokens": 1})
        if not 0 <= self.noise < 1:
            message = f"a probability from 0 to less than 1 is needed, got {self.noise}."
            issues.append(ConfigIssue("noise", "out_of_range", message))
        return issues

    @property
    def num_values(self) -> int:
        """Number of different values."""
        return self.values or self.keys

    @property
    def alphabet(self) -> tuple[str, ...]:
        noise = (("n", self.noise_tokens),) if self.noise > 0 else ()
        return name_tokens(("_",), ("k", self.keys), ("v", self.num_values), *noise)

    @property
    def chance_level(self) -> float:
        return 100 / self.num_values

    def count_inputs(self, size: int) -> int:
        pairs = self.keys * self.num_values + (self.noise_tokens**2 if self.noise > 0 else 0)
        return pairs ** ((size - 1) // 2) * self.keys  # an upper bound: a key has one value in a row

    def size_range(self, low: int, high: int) -> tuple[int, int]:
        return (low + 1) // 2 * 2 - 1, (high + 1) // 2 * 2 - 1

    def draw_sizes(self, rng: CounterRng, low: int, high: int) -> IntArray:
        return 2 * rng.integers("size", (low + 1) // 2, (high + 1) // 2) - 1

    def write_examples(self, rng: CounterRng, sizes: IntArray, width: int) -> tuple[IntArray, IntArray]:
        count, rows, num_pairs = len(sizes), np.arange(len(sizes)), (width + 1) // 2  # of the longest row
        number, last = np.arange(num_pairs), sizes // 2  # last: number of the last pair, [B, 1]
        key = rng.integers("key", 0, self.keys - 1, num_pairs)
        value_of_key = rng.integers("value", 0, self.num_values - 1, self.keys)
        is_noise = rng.uniform("is noise", num_pairs) < self.noise
        is_noise &= (number < last) & (number != rng.integers("never noise", 0, last - 1))

        shown = np.zeros((count, self.keys), dtype=bool)
        preference = rng.uniform("last key", self.keys)
        is_query = np.zeros((count, num_pairs), dtype=bool)
        for pair in number:
            is_last = last[:, 0] == pair
            key[is_last, pair] = np.where(shown, preference, -1.0).argmax(1)[is_last]
            is_query[:, pair] = shown[rows, key[:, pair]] & ~is_noise[:, pair]
            shown[rows, key[:, pair]] |= ~is_noise[:, pair]
        value = np.take_along_axis(value_of_key, key, 1)
        first_value = FIRST_KEY + self.keys
        first_noise = first_value + self.num_values
        noise = rng.integers("noise", first_noise, first_noise + self.noise_tokens - 1, 2 * num_pairs)
        pairs = np.stack([FIRST_KEY + key, first_value + value], 2).reshape(count, -1)
        tokens = np.where(is_noise.repeat(2, 1), noise, pairs)[:, :width]
        labels = np.full((count, width), -1)
        labels[:, ::2] = np.where(is_query, first_value + value, -1)
        return tokens, labels
