"""State based recall: which value does a variable point to, after variables were swapped?

    m values; `init`; five times a variable and its address; `ops`; n swaps of two variables; `query`; variable
    label at the last token: the value at the address that this variable now has

    values uniform; addresses distinct and uniform; swaps of two different variables, uniform; query uniform

Tracking the addresses is a state of 5! permutations, and reading the value is recall from m items: one memory alone
does either.  In a share of training rows (`check_share`) every r-th swap is followed by `check`, a variable and its
address, which is a label in training; r is a power of 2 up to n.  Test rows have no checks.  Sizes in options count
swaps, those in metrics all tokens.

    task: {name: state_based_recall, items: 16, values: 16, train_length: [16, 16], test_length: [16, 16]}

Two shortcuts follow no swap: the most frequent of the five values, and the value that the variable had at first.  With
two values they are right in 68.75 % and 60 % of long rows (`shortcut_accuracies`).

After Merrill et al. 2026, arXiv:2604.03444, where the rows are code.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import perm
from typing import ClassVar

import numpy as np

from hqlt_lab.errors import ConfigIssue
from hqlt_lab.registry import register
from hqlt_lab.tasks._base import Split
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._generated_task import ExampleArrays, GeneratedTask
from hqlt_lab.tasks._shortcut_accuracy import expected_top_share
from hqlt_lab.tasks._token_names import name_tokens

INIT, OPS, CHECK, QUERY, FIRST_VARIABLE = 1, 2, 3, 4, 5
VARIABLES = 5
FIRST_VALUE = FIRST_VARIABLE + VARIABLES
NO_CHECK = 0  # gap between checks in a row without checks


@register("task", "state_based_recall")
@dataclass(frozen=True, kw_only=True)
class StateBasedRecall(GeneratedTask):
    train_length: tuple[int, int] = (8, 8)
    """Smallest and largest number of swaps in train and short."""
    test_length: tuple[int, int] = (8, 8)
    """Smallest and largest number of swaps in test."""
    items: int = 8
    """Number of values in a row."""
    addresses: int | None = None
    """Number of different addresses, of which a row uses the first ones; null: as many as items."""
    values: int = 2
    """Number of different values."""
    check_share: float = 0.8
    """Share of training rows in which some swaps are followed by a check."""

    unread_tokens = 0
    min_size: ClassVar[int] = 1

    def find_option_issues(self) -> list[ConfigIssue]:
        issues = self.check_minimums({"items": VARIABLES, "values": 2, "addresses": self.items})
        if not 0 <= self.check_share < 1:
            message = f"a share from 0 to less than 1 is needed, got {self.check_share}."
            issues.append(ConfigIssue("check_share", "out_of_range", message))
        return issues

    @property
    def alphabet(self) -> tuple[str, ...]:
        fixed = ("_", "init", "ops", "check", "query", *"abcde")
        return name_tokens(fixed, ("v", self.values), ("@", self.addresses or self.items))

    @property
    def chance_level(self) -> float:
        return 100 / self.values

    @property
    def shortcut_accuracies(self) -> Mapping[str, float]:
        low, high = self._requested_ranges()["test"]
        # a variable has its first address again with probability (1 + 4 / 2^n) / 5
        returned = np.mean([(1 + 4 * 0.5**swaps) / VARIABLES for swaps in range(low, high + 1)])
        return {
            "the most frequent of the five values": 100 * expected_top_share(VARIABLES, self.values),
            "the value before the swaps": 100 * float(returned + (1 - returned) / self.values),
        }

    @property
    def fixed_tokens(self) -> int:
        """Number of tokens of a row besides swaps and checks."""
        return self.items + 1 + 2 * VARIABLES + 1 + 2

    def count_inputs(self, size: int) -> int:
        swaps = (size - self.fixed_tokens) // 2
        pairs = VARIABLES * (VARIABLES - 1)
        return self.values**self.items * perm(self.items, VARIABLES) * pairs**swaps * VARIABLES

    def split_range(self, split: str, low: int, high: int) -> tuple[int, int]:
        tokens_per_swap = 5 if self.check_share > 0 and split in ("train", "short") else 2
        return self.fixed_tokens + 2 * low, self.fixed_tokens + tokens_per_swap * high

    def draw_sizes(self, rng: CounterRng, low: int, high: int) -> IntArray:
        return self.fixed_tokens + 2 * rng.integers("swaps", low, high)

    def generate_rows(self, split: Split, seed: int, numbers: IntArray, stream_suffix: str = "") -> ExampleArrays:
        rng, width = self._make_rng(split, seed, numbers, stream_suffix), self.sequence_length(split)
        low, high = self._requested_ranges()[split]
        num_swaps = rng.integers("swaps", low, high)  # [B, 1]
        gaps = self.draw_gaps(rng, num_swaps, self.check_share if split in ("train", "short") else 0.0)
        items = rng.integers("value", FIRST_VALUE, FIRST_VALUE + self.values - 1, self.items)
        addresses = rng.distinct_integers("address", 0, self.items - 1, VARIABLES)  # [B, 5]
        states, swaps = track_addresses(rng, addresses, high)  # [B, high + 1, 5], [B, high, 2]
        rows, first_address = np.arange(len(numbers)), FIRST_VALUE + self.values
        tokens, labels = np.zeros((len(numbers), width), dtype=np.int64), np.full((len(numbers), width), -1)
        tokens[:, : self.items] = items
        start = self.items
        tokens[:, start] = INIT
        tokens[:, start + 1 : start + 11 : 2] = FIRST_VARIABLE + np.arange(VARIABLES)
        tokens[:, start + 2 : start + 12 : 2] = first_address + addresses
        tokens[:, start + 11] = OPS
        checked = rng.integers("checked", 0, VARIABLES - 1, high)  # [B, high]
        column = np.full(len(numbers), start + 12)  # the next free column of each row
        for swap in range(high):
            active = swap < num_swaps[:, 0]
            row = rows[active]
            tokens[row, column[row]], tokens[row, column[row] + 1] = FIRST_VARIABLE + swaps[row, swap].T
            column[row] += 2
            row = rows[active & (gaps != NO_CHECK) & ((swap + 1) % np.maximum(gaps, 1) == 0)]
            variable, start = checked[row, swap], column[row]
            address = first_address + states[row, swap + 1, variable]
            tokens[row, start], tokens[row, start + 1], tokens[row, start + 2] = (
                CHECK,
                FIRST_VARIABLE + variable,
                address,
            )
            if split == "train":
                labels[row, start + 1] = address
            column[row] += 3
        queried = rng.integers("asked", 0, VARIABLES - 1)[:, 0]
        tokens[rows, column], tokens[rows, column + 1] = QUERY, FIRST_VARIABLE + queried
        labels[rows, column + 1] = items[rows, states[rows, num_swaps[:, 0], queried]]
        return self.select_labels(ExampleArrays(tokens, labels, column + 2), split)

    def draw_gaps(self, rng: CounterRng, num_swaps: IntArray, check_share: float) -> IntArray:
        """Draw the number of swaps between two checks of each row, a power of 2; 0: a row without checks, [B]."""
        max_exponent = np.frexp(num_swaps)[1] - 1  # floor(log2)
        gaps = 2 ** rng.integers("gap", 0, max_exponent)
        return np.where(rng.uniform("has checks") < check_share, gaps, NO_CHECK)[:, 0]


def track_addresses(rng: CounterRng, addresses: IntArray, num_swaps: int) -> tuple[IntArray, IntArray]:
    """Return the addresses of the variables before and after each swap [B, n + 1, 5], and the swaps [B, n, 2]."""
    first = rng.integers("first", 0, VARIABLES - 1, num_swaps)
    second = (first + rng.integers("second", 1, VARIABLES - 1, num_swaps)) % VARIABLES
    states, rows = [addresses], np.arange(len(addresses))
    for a, b in zip(first.T, second.T, strict=True):
        state = states[-1].copy()
        state[rows, a], state[rows, b] = state[rows, b], state[rows, a]
        states.append(state)
    return np.stack(states, 1), np.stack([first, second], 2)
