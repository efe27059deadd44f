"""Finite training sets: the rows of each step, epoch after epoch.

    segment k has rows 0 ... R_k - 1 in ceil(R_k / batch_size) batches per epoch; the last batch may have fewer rows
    order: fixed       each epoch reads the segments one after the other, each from its first row to its last
    order: shuffled    each epoch reads the rows of each segment in a new order, and the batches of all segments too

A batch has rows of one segment.  The rows of a step are a function of the seed and the step, so a resumed run needs no
state of its data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Literal

import numpy as np

from hqlt_lab.tasks._counter_rng import CounterRng, IntArray

RowOrder = Literal["fixed", "shuffled"]
CACHED_ORDERS = 16  # permutations of the rows of a segment in memory


@dataclass(frozen=True)
class TrainingSet:
    """The number of rows of each segment, and the order in which they are read."""

    segment_rows: tuple[int, ...]
    order: RowOrder
    stream: str  # name of the random stream of the orders

    def batch_counts(self, batch_size: int) -> list[int]:
        """Return the number of batches of each segment in an epoch."""
        return [-(-rows // batch_size) for rows in self.segment_rows]

    def steps_per_epoch(self, batch_size: int) -> int:
        """Return the number of batches of all segments in an epoch."""
        return sum(self.batch_counts(batch_size))

    def batch_sizes(self, batch_size: int) -> list[int]:
        """Return the different sizes of batches."""
        return sorted(
            {min(batch_size, rows - start) for rows in self.segment_rows for start in last_starts(rows, batch_size)}
        )

    def select_rows(self, step: int, batch_size: int) -> tuple[int, IntArray]:
        """Return the segment of a step, and the numbers of its rows in this segment."""
        epoch, batch = divmod(step, self.steps_per_epoch(batch_size))
        if self.order == "shuffled" and len(self.segment_rows) > 1:
            batch = int(random_order(f"{self.stream}/batches", epoch, self.steps_per_epoch(batch_size))[batch])
        segment, batch_of_segment = locate(self.batch_counts(batch_size), batch)
        first, rows = batch_of_segment * batch_size, self.segment_rows[segment]
        end = min(first + batch_size, rows)
        if self.order == "fixed":
            return segment, np.arange(first, end)
        return segment, random_order(f"{self.stream}/rows_{segment}", epoch, rows)[first:end]


def last_starts(rows: int, batch_size: int) -> tuple[int, ...]:
    """Return the first row of the first and of the last batch of a segment."""
    return 0, (rows - 1) // batch_size * batch_size


def locate(counts: Sequence[int], index: int) -> tuple[int, int]:
    """Return the group in which an index lies, and its index in the group, for groups with these counts."""
    ends = list(accumulate(counts))
    group = next(number for number, end in enumerate(ends) if index < end)
    return group, index - ends[group] + counts[group]


@lru_cache(CACHED_ORDERS)
def random_order(stream: str, epoch: int, count: int) -> IntArray:
    """Return a random permutation of 0 ... count - 1 for an epoch."""
    return CounterRng(stream, epoch, 1).permutations("order", count)[0]
