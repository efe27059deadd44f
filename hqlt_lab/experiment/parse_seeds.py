"""Parse `seeds` and `tune_seeds`: their number, a list of them, or for `seeds` how their number is decided.

    seeds: 3                                        0, 1 and 2
    seeds: [0, 7]
    seeds: {min: 5, max: 20, until: decided}        seeds 0, 1, ..., as many as the comparisons need

With `until: decided`, verdicts are computed after certain numbers of seeds, the looks. By default these are `min`, the
numbers of DEFAULT_LOOKS between `min` and `max`, and `max`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hqlt_lab.errors import ConfigError, ConfigIssue, issues_under
from hqlt_lab.registry import parse_settings
from hqlt_lab.registry.settings_parsing import raise_if_invalid

DEFAULT_SEEDS, DEFAULT_TUNE_SEEDS = 3, 3
FIRST_TUNE_SEED = 1000  # `tune_seeds: 2` means 1000 and 1001, so that no reported seed is used for tuning
MIN_SEEDS = 3  # required for a verdict
DEFAULT_LOOKS = (5, 8, 12, 20, 30, 50, 80, 120, 200, 300, 500, 800)


@dataclass(frozen=True, kw_only=True)
class SeedsUntilDecided:
    """Seeds that are added until every comparison of the report is decided."""

    min: int = 5
    """Seeds of every arm before the first look."""
    max: int = 20
    """Seeds after which no arm gets more, even if its comparison is not decided."""
    until: Literal["decided"] = "decided"
    """An arm gets more seeds until it is better, worse, or with `measure.margin` equivalent."""
    looks: list[int] | None = None
    """Numbers of seeds between min and max after which verdicts are computed; null: 5, 8, 12, 20, 30, 50, 80, ..."""

    def __post_init__(self) -> None:
        too_few = f"at least {MIN_SEEDS} seeds are needed for a verdict, got {self.min}."
        wrong_order = f"{self.max} is smaller than min, {self.min}."
        looks = self.looks or []
        not_looks = f"increasing numbers from min to max are needed, got {looks}."
        is_valid = looks == sorted(set(looks)) and all(self.min <= count <= self.max for count in looks)
        raise_if_invalid(
            [] if self.min >= MIN_SEEDS else [ConfigIssue("min", "too_few_seeds", too_few)],
            ([ConfigIssue("max", "max_below_min", wrong_order)] if self.max < self.min else [])
            or ([] if is_valid else [ConfigIssue("looks", "invalid_looks", not_looks)]),
        )

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of seeds after which verdicts are computed, from min to max."""
        between = DEFAULT_LOOKS if self.looks is None else self.looks
        inner_counts = (count for count in between if self.min < count < self.max)
        return tuple(sorted({self.min, *inner_counts, self.max}))


def parse_seeds(config: Mapping[str, Any], key: str, default: int, first_seed: int = 0) -> tuple[int, ...]:
    """Parse `seeds` or `tune_seeds`: a list of seeds, or their number, counted from `first_seed`.

    `seeds` may also be a mapping; all seeds up to its maximum are returned.
    """
    value = config.get(key, default)
    if key == "seeds" and isinstance(value, Mapping):
        return tuple(range(first_seed, first_seed + parse_until_decided(value).max))
    is_count = isinstance(value, int) and not isinstance(value, bool)
    if value == [] or (is_count and value < 1):
        hint = f"`{key}: [{first_seed}]` trains seed {first_seed} alone."
        raise ConfigError.at(key, "no_seed", f"at least 1 seed is needed, got {value!r}.", hint)
    seeds = list(range(first_seed, first_seed + value)) if is_count else value
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int and 0 <= seed < 2**63 for seed in seeds):
        raise ConfigError.at(key, "invalid_seeds", f"a number of seeds or a list of them is needed, got {value!r}.")
    if len(set(seeds)) < len(seeds):
        raise ConfigError.at(key, "seed_twice", f"{value!r} contains a seed twice.")
    return tuple(seeds)


def parse_looks(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the numbers of seeds after which verdicts are computed; empty if the number of seeds is fixed."""
    value = config.get("seeds")
    return parse_until_decided(value).counts if isinstance(value, Mapping) else ()


def parse_until_decided(settings: Mapping[str, Any]) -> SeedsUntilDecided:
    """Parse `seeds: {min, max, until, looks}`."""
    with issues_under("seeds"):
        return parse_settings(SeedsUntilDecided, settings)
