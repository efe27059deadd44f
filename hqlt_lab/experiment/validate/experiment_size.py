"""Limit the size of an experiment. Sizes are counted from the lengths of lists, before cells are created.

    compositions = arms x crossed levels x tuned points         each is checked when the file is read
    cells        = compositions x seeds                         each is trained

Without limits a typo or a malicious file, such as `seeds: 1000000000`, would exhaust the memory.
"""

import math
from collections.abc import Mapping
from typing import Any

from hqlt_lab.errors import ConfigError, ConfigIssue

MAX_COMPOSITIONS, MAX_CELLS = 10_000, 50_000
REDUCE_HINT = "Split the experiment into several files, or use fewer arms, values or seeds."


def check_size_limits(config: Mapping[str, Any], default_seeds: int, default_tune_seeds: int) -> None:
    """Raise ConfigError if the experiment has too many compositions or cells."""
    compositions = count_arms(config) * count_points(config.get("tune"))
    # at least 1 point: the list of tune_seeds is created even if nothing is searched
    search_cells = max(1, count_search_points(config)) * count_values(config.get("tune_seeds", default_tune_seeds))
    cells = max(compositions * count_values(config.get("seeds", default_seeds)), search_cells)
    if compositions > MAX_COMPOSITIONS:
        message = f"there are {format_number(compositions)} compositions, but at most {MAX_COMPOSITIONS:,} are allowed."
        raise ConfigError(
            ConfigIssue("arms", "too_many_compositions", message, REDUCE_HINT, other_paths=("cross", "tune"))
        )
    if cells > MAX_CELLS:
        message = f"there are {format_number(cells)} cells, but at most {MAX_CELLS:,} are allowed."
        raise ConfigError(
            ConfigIssue("arms", "too_many_cells", message, REDUCE_HINT, other_paths=("cross", "tune", "seeds"))
        )


def count_arms(config: Mapping[str, Any]) -> int:
    """Return the number of arms times levels."""
    levels = count_points(config.get("cross")) + sum(map(count_values, axis_values(config.get("one_at_a_time"))))
    return max(1, len(config.get("arms") or {})) * levels


def count_points(section: Any) -> int:
    """Return the number of combinations of axis values. A searched range counts as 2: both ends are checked."""
    return math.prod(2 if isinstance(axis, Mapping) else count_values(axis) for axis in axis_values(section))


def count_search_points(config: Mapping[str, Any]) -> int:
    """Return the number of points to search, over all arms."""
    trials = [axis.get("trials", 1) for axis in axis_values(config.get("tune")) if isinstance(axis, Mapping)]
    return count_arms(config) * max(map(count_values, trials), default=0)


def axis_values(section: Any) -> list[Any]:
    """Return the value of each axis; none for a section that is not a mapping, which other checks report."""
    return list(section.values()) if isinstance(section, Mapping) else []


def count_values(value: Any) -> int:
    """Return the length of a list or the value of an int, at least 1; of a mapping such as `seeds` the largest value.

    1 for other types, which other checks report.
    """
    if isinstance(value, Mapping):
        return max((count_values(entry) for entry in value.values() if isinstance(entry, int)), default=1)
    return max(1, len(value) if isinstance(value, list) else value if isinstance(value, int) else 1)


def format_number(number: int) -> str:
    """Return a number such as 1,000,000, or "more than 10^N" for a very large one."""
    return f"{number:,}" if number < 10**15 else f"more than 10^{int(math.log10(number))}"
