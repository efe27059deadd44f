"""How large an experiment may be: counted from the lengths of its lists, before any of it is laid out.

    compositions = arms x crossed levels x tuned points         each is checked when the file is read
    cells        = compositions x seeds                         each is trained

A slip of the pen, or of somebody who means ill, is a few letters in a file: `seeds: 1000000000`.
"""

import math
from collections.abc import Mapping
from typing import Any

from hqlt_lab.errors import ConfigError

COMPOSITIONS, CELLS = 10_000, 50_000
LESS = "Split the experiment into several files, or vary less."


def check_extent(told: Mapping[str, Any], seeds: int, tune_seeds: int) -> None:
    """A sentence unless an experiment of this extent can be planned; the two numbers hold where it does not say."""
    compositions = arms_in(told) * points_in(told.get("tune"))
    searched = max(1, searches_in(told)) * count(told.get("tune_seeds", tune_seeds))  # seeds are laid out in any case
    cells = max(compositions * count(told.get("seeds", seeds)), searched)
    if compositions > COMPOSITIONS:
        raise ConfigError(
            f"arms, cross, tune: {in_words(compositions)} compositions are asked for, and {COMPOSITIONS:,} are the "
            f"most. {LESS}"
        )
    if cells > CELLS:
        raise ConfigError(
            f"arms, cross, tune, seeds: {in_words(cells)} cells are asked for, and {CELLS:,} are the most. {LESS}"
        )


def arms_in(told: Mapping[str, Any]) -> int:
    """The file's arms at all levels."""
    levels = points_in(told.get("cross")) + sum(map(count, axes(told.get("one_at_a_time"))))
    return max(1, len(told.get("arms") or {})) * levels


def points_in(told: Any) -> int:
    """Choices of one value per axis; of a searched range both ends are looked at."""
    return math.prod(2 if isinstance(axis, Mapping) else count(axis) for axis in axes(told))


def searches_in(told: Mapping[str, Any]) -> int:
    """Points that are searched, in all arms."""
    trials = [axis.get("trials", 1) for axis in axes(told.get("tune")) if isinstance(axis, Mapping)]
    return arms_in(told) * max(map(count, trials), default=0)


def axes(told: Any) -> list[Any]:
    """What is given for each axis; a section that is none is complained of elsewhere."""
    return list(told.values()) if isinstance(told, Mapping) else []


def count(told: Any) -> int:
    """Of a list its length, a number as it is, and at least 1: what is neither is complained of elsewhere."""
    return max(1, len(told) if isinstance(told, list) else told if isinstance(told, int) else 1)


def in_words(number: int) -> str:
    """1,000,000, or how many digits it would take."""
    return f"{number:,}" if number < 10**15 else f"more than 10^{int(math.log10(number))}"
