"""What is varied: lists of values, and ranges that are searched."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hqlt_lab.errors import ConfigError
from hqlt_lab.registry import settings_from


@dataclass(frozen=True, kw_only=True)
class Range:
    """Values between two bounds, searched by TPE."""

    low: float
    """The smallest value."""
    high: float
    """The largest value."""
    log: bool = False
    """Whether equal ratios, not equal differences, are equally likely."""
    trials: int = 10
    """Points that are tried per arm."""

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ConfigError(f"low: {self.low} is not below high, {self.high}.")
        if self.log and self.low <= 0:
            raise ConfigError(f"low: a logarithmic range begins above 0, got {self.low}.")
        if self.trials < 1:
            raise ConfigError(f"trials: at least 1 is needed, got {self.trials}.")


def tuning(told: Any) -> dict[str, list[Any] | Range]:
    """The `tune` section: a list is a grid, {low, high, log, trials} a range."""
    ranges: dict[str, list[Any] | Range] = {}
    lists = {}
    for path, values in mapping(told, "tune").items():
        if isinstance(values, Mapping):
            try:
                ranges[path] = settings_from(Range, values)
            except (ConfigError, TypeError) as error:
                raise ConfigError(
                    f"tune.{path}: {error}. A range is {{low, high, log, trials}}.".replace("..", ".")
                ) from error
        else:
            lists[path] = values
    return grid(lists, "tune") | ranges


def grid(told: Any, at: str) -> dict[str, list[Any]]:
    """Axes, each a list of two or more different values."""
    axes = mapping(told, at)
    for path, values in axes.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"{at}.{path}: a list of values is needed, got {values!r}.")
        for number, value in enumerate(values):
            if value in values[:number]:
                raise ConfigError(f"{at}.{path}: {value!r} stands there twice.")
    return axes


def mapping(told: Any, at: str) -> dict[str, Any]:
    if not isinstance(told, Mapping):
        raise ConfigError(f"{at}: a mapping of paths, such as model.mixer, to values is needed, got {told!r}.")
    return {str(path): values for path, values in told.items()}
