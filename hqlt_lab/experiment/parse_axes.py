"""Parse the axes of an experiment: lists of values (grids), and ranges that are searched."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hqlt_lab.errors import ConfigError, issues_under
from hqlt_lab.registry import check_minimums, parse_settings
from hqlt_lab.registry.settings_parsing import raise_if_invalid

RANGE_HINT = "A range is {low, high, log, trials}."


@dataclass(frozen=True, kw_only=True)
class Range:
    """Values between two bounds, searched by TPE."""

    low: float
    """The smallest value."""
    high: float
    """The largest value."""
    log: bool = False
    """Sample on a logarithmic scale."""
    trials: int = 10
    """Number of points to try per arm."""

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ConfigError.at(
                "low", "range_in_wrong_order", f"{self.low} is not below high, {self.high}.", RANGE_HINT
            )
        if self.log and self.low <= 0:
            raise ConfigError.at(
                "low", "not_positive", f"a logarithmic range begins above 0, got {self.low}.", RANGE_HINT
            )
        raise_if_invalid(check_minimums(self, {"trials": 1}))


def parse_tune(section: Any) -> dict[str, list[Any] | Range]:
    """Parse the `tune` section: a list of values is a grid, {low, high, log, trials} a range."""
    ranges: dict[str, list[Any] | Range] = {}
    lists = {}
    for path, values in require_path_mapping(section, "tune").items():
        if isinstance(values, Mapping):
            with issues_under(f"tune.{path}"):
                ranges[path] = parse_range(values)
        else:
            lists[path] = values
    return parse_grid(lists, "tune") | ranges


def parse_range(settings: Mapping[str, Any]) -> Range:
    """Parse a range {low, high, log, trials}, of which the bounds are required."""
    try:
        return parse_settings(Range, settings)
    except TypeError as error:  # a required setting is missing, and no other is unknown or of the wrong type
        missing = " and ".join(bound for bound in ("low", "high") if bound not in settings)
        raise ConfigError.at("", "range_without_bound", f"{missing} of the range is missing.", RANGE_HINT) from error


def parse_grid(section: Any, location: str) -> dict[str, list[Any]]:
    """Parse axes: a mapping from paths to non-empty lists of distinct values."""
    axes = require_path_mapping(section, location)
    for path, values in axes.items():
        if not isinstance(values, list) or not values:
            raise ConfigError.at(
                f"{location}.{path}", "not_a_list_of_values", f"a list of values is needed, got {values!r}."
            )
        for number, value in enumerate(values):
            if value in values[:number]:
                raise ConfigError.at(f"{location}.{path}", "value_twice", f"{value!r} occurs twice.")
    return axes


def require_path_mapping(section: Any, location: str) -> dict[str, Any]:
    if not isinstance(section, Mapping):
        raise ConfigError.at(
            location,
            "not_a_mapping_of_paths",
            f"a mapping of paths, such as model.mixer, to values is needed, got {section!r}.",
        )
    return {str(path): values for path, values in section.items()}
