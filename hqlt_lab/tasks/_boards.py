"""Boards of cells, drawn in letters: `#` wall, `@` where the agent begins, others as a world means them.

What is seen is the square of cells around the agent; beyond the board there is background.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hqlt_lab.tasks._counter import Ints
from hqlt_lab.tasks._world import Bools, Bytes

SIGHT = 2  # cells that are seen in each direction


@dataclass(frozen=True)
class Board:
    """A room."""

    rows: Sequence[str]

    @cached_property
    def walls(self) -> Bools:
        """[rows, columns]"""
        return np.array([[letter == "#" for letter in row] for row in self.rows])

    def places(self, letter: str) -> Ints:
        """Where that letter stands, row by row, [K, 2]."""
        return np.argwhere(np.array([list(row) for row in self.rows]) == letter)

    @cached_property
    def start(self) -> Ints:
        """[2]"""
        return self.places("@")[0]


def bordered(cells: Bytes) -> Bytes:
    """Boards [..., rows, columns] with as much background around them as can be seen from their edges."""
    plain = [(0, 0)] * (cells.ndim - 2)
    return np.pad(cells, (*plain, (SIGHT, SIGHT), (SIGHT, SIGHT)))


def around(cells: Bytes, places: Ints) -> Bytes:
    """What is seen from places [N, 2], told without the border, of bordered boards [N, rows, columns]: [N, 5, 5]."""
    columns, near = cells.shape[2], np.arange(2 * SIGHT + 1)
    window = (near[:, None] * columns + near).ravel()  # [25]
    corner = places[:, :1] * columns + places[:, 1:]  # [N, 1]
    return np.take_along_axis(cells.reshape(len(cells), -1), corner + window, 1).reshape(-1, len(near), len(near))


def in_sight(shape: tuple[int, int], places: Ints) -> Bools:
    """Which cells of a board are seen from each place, [N, rows, columns]."""
    rows, columns = (np.abs(np.arange(size) - places[:, axis, None]) <= SIGHT for axis, size in enumerate(shape))
    return rows[:, :, None] & columns[:, None, :]


def dimmed(picture: Bytes, seen: Bools) -> Bytes:
    """A picture in which only what is seen has its full colours."""
    return np.where(seen[..., None], picture, picture // 2 + 96)
