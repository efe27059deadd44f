"""Forgetting recall: associative recall in which some keys get a new value, and the latest one counts.

    key value ... for all pairs, then key value for `updates` of the keys, then slots of two tokens: a key and a blank,
    or two blanks                                               label at each of these keys: its latest value

Keys are distinct, and so are their first values.  An updated key is drawn without replacement, and its new value
differs from its first one.  Each key is queried once, in slot i with a weight of i^(power - 1).  A memory that adds the
new value to the old one returns both.  The size counts all input tokens.

The shortcut of reading the first value of each key is right for the keys that are not updated (`shortcut_accuracies`).

    task: {name: forgetting_recall, pairs: 4, updates: 4, train_length: [64, 64], test_length: [64, 64]}

After the forgetting variant of associative recall in HazyResearch/zoology (2026), where the new value differs from the
old value of another key by mistake.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import perm
from typing import Any

import numpy as np

from hqlt_lab.errors import ConfigIssue
from hqlt_lab.registry import register
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._generated_task import GeneratedTask
from hqlt_lab.tasks._token_names import name_tokens
from hqlt_lab.tasks.recall._query_slots import Fill, count_fillings, draw_slots, find_power_issues, make_filler

BLANK, FIRST_KEY = 1, 2


@register("task", "forgetting_recall")
@dataclass(frozen=True, kw_only=True)
class ForgettingRecall(GeneratedTask):
    train_length: tuple[int, int] = (64, 64)
    """Smallest and largest size in train and short."""
    test_length: tuple[int, int] = (64, 64)
    """Smallest and largest size in test."""
    pairs: int = 4
    """Number of keys to remember."""
    updates: int = 4
    """Number of keys that get a new value."""
    keys: int = 64
    """Number of different keys."""
    values: int = 64
    """Number of different values."""
    power: float = 0.01
    """How evenly the queries are spread: 1 is uniform, near 0 most queries come soon after the pairs."""
    fill: Fill = "blank"
    """Tokens in slots without a query: blanks, or random tokens, which may be keys and values."""

    unread_tokens = 0

    def find_option_issues(self) -> list[ConfigIssue]:
        issues = self.check_minimums({"pairs": 1, "keys": self.pairs, "values": max(self.pairs, 2), "updates": 0})
        if self.updates > self.pairs:
            message = f"at most all {self.pairs} keys can get a new value, got {self.updates}."
            issues.append(ConfigIssue("updates", "more_updates_than_pairs", message))
        return issues + find_power_issues(self.power)

    @property
    def min_size(self) -> int:
        return 4 * self.pairs + 2 * self.updates

    @property
    def alphabet(self) -> tuple[str, ...]:
        return name_tokens(("_", "."), ("k", self.keys), ("v", self.values))

    @property
    def chance_level(self) -> float:
        return 100 / self.values

    @property
    def shortcut_accuracies(self) -> Mapping[str, float]:
        if self.updates in (0, self.pairs):
            return {}  # the shortcut solves everything or nothing
        return {"the first value of each key": 100 * (1 - self.updates / self.pairs)}

    def count_inputs(self, size: int) -> int:
        pairs = perm(self.keys, self.pairs) * perm(self.values, self.pairs)
        updates = perm(self.pairs, self.updates) * (self.values - 1) ** self.updates
        fillings = count_fillings(self.fill, size - 3 * self.pairs - 2 * self.updates, self.vocabulary)
        return pairs * updates * perm(self.num_slots(size), self.pairs) * fillings

    def num_slots(self, size: Any) -> Any:
        """Return the number of slots of examples of this size, an integer or an array."""
        return size // 2 - self.pairs - self.updates

    def write_examples(self, rng: CounterRng, sizes: IntArray, width: int) -> tuple[IntArray, IntArray]:
        first_value, rows = FIRST_KEY + self.keys, np.arange(len(sizes))[:, None]
        keys = rng.distinct_integers("key", FIRST_KEY, first_value - 1, self.pairs)
        values = rng.distinct_integers("value", 0, self.values - 1, self.pairs)
        updated = rng.distinct_integers("updated", 0, self.pairs - 1, self.updates)  # [B, updates]
        shift = rng.integers("new value", 1, self.values - 1, self.updates)
        new_values = (values[rows, updated] + shift) % self.values
        latest = values.copy()
        latest[rows, updated] = new_values

        tokens, labels = make_filler(rng, self.fill, width, BLANK, self.vocabulary), np.full((len(sizes), width), -1)
        shown_keys = np.concatenate([keys, keys[rows, updated]], 1)
        shown_values = first_value + np.concatenate([values, new_values], 1)
        shown_tokens = 2 * (self.pairs + self.updates)
        tokens[:, :shown_tokens] = np.stack([shown_keys, shown_values], 2).reshape(len(sizes), -1)
        queries = shown_tokens + 2 * draw_slots(rng, self.num_slots(sizes), self.pairs, self.power)
        np.put_along_axis(tokens, queries, keys, 1)
        np.put_along_axis(labels, queries, first_value + latest, 1)
        return tokens, labels
