"""Slots of queries: equally long pieces at the end of a row, some of which hold a query.

Slot i = 1, 2, ... is drawn without replacement with a weight of i^(power - 1): with a small power most queries follow
soon after the pairs, as in language; with 1 they are uniform.
"""

from typing import Literal

import numpy as np

from hqlt_lab.errors import ConfigIssue
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray

Fill = Literal["blank", "random"]


def draw_slots(rng: CounterRng, num_slots: IntArray, queries: int, power: float) -> IntArray:
    """Draw the slots of the queries [B, queries], in the order in which they are drawn; `num_slots` is [B, 1]."""
    number = np.arange(num_slots.max())
    # sorting exponential arrival times with these rates is sampling by weight without replacement
    arrival_times = -np.log(rng.uniform("slot", len(number))) / (number + 1.0) ** (power - 1)
    arrival_times[number >= num_slots] = np.inf
    return arrival_times.argsort(1)[:, :queries]


def make_filler(rng: CounterRng, fill: Fill, width: int, blank: int, vocabulary: int) -> IntArray:
    """Return rows of blanks [B, width], or of tokens drawn from all except padding."""
    if fill == "random":
        return rng.integers("filler", blank, vocabulary - 1, width)
    return np.full((len(rng.example_numbers), width), blank)


def count_fillings(fill: Fill, blanks: int, vocabulary: int) -> int:
    """Return the number of different ways to fill the blanks of a row."""
    return (vocabulary - 1) ** blanks if fill == "random" else 1


def find_power_issues(power: float) -> list[ConfigIssue]:
    """Return an issue if this is not a power."""
    return [] if power > 0 else [ConfigIssue("power", "not_positive", f"more than 0 is needed, got {power}.")]
