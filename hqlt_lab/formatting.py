"""Format durations, sizes and counts for people, and any value as JSON."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

SECONDS_PER_DAY, SECONDS_PER_YEAR = 86_400, 31_557_600


def format_duration(seconds: float, significant_digits: int = 3) -> str:
    """Return a duration such as 42 s, 3 min, 2.5 h, 4 d or 85 years."""
    for unit, size, next_size in (
        ("s", 1, 90),
        ("min", 60, 5400),
        ("h", 3600, 172800),
        ("d", SECONDS_PER_DAY, 2 * SECONDS_PER_YEAR),
    ):
        if seconds < next_size:
            return f"{format_digits(seconds / size, significant_digits)} {unit}"
    return f"{format_digits(seconds / SECONDS_PER_YEAR, significant_digits)} years"


def format_estimate(seconds: float) -> str:
    """Return a duration with two digits, such as "about 40 s", "about 2.5 h" or "less than a second"."""
    return f"about {format_duration(seconds, significant_digits=2)}" if seconds >= 1 else "less than a second"


def format_bytes(size: float) -> str:
    """Return a size such as 12 kB, 3.4 MB or 1.2 GB."""
    return format_scaled(size, 1000, ("B", "kB", "MB", "GB", "TB", "PB"))


def format_count(count: float) -> str:
    """Return a count such as 950, 595k, 399M or 1.47B."""
    return format_scaled(count, 1000, ("", "k", "M", "B", "T")).replace(" ", "")


def pluralize_count(count: int, noun: str) -> str:
    """Return e.g. "1 cell" or "2 cells"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def join_numbers(numbers: Iterable[int]) -> str:
    """Return e.g. "5, 8 and 12"."""
    texts = [str(number) for number in numbers]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def format_scaled(value: float, base: int, units: tuple[str, ...]) -> str:
    """Return the value in the smallest unit in which it is below `base`."""
    for unit in units[:-1]:
        if value < base:
            return f"{format_digits(value)} {unit}"
        value /= base
    return f"{format_digits(value)} {units[-1]}"


def format_digits(value: float, significant_digits: int = 3) -> str:
    """Return a number with this many significant digits, or all its integer digits; never in scientific notation."""
    return f"{value:.{significant_digits}g}" if value < 10**significant_digits - 0.5 else f"{value:,.0f}"


def dump_json(value: Any) -> str:
    """Return the value as a JSON document. NaN and infinity, which JSON does not have, become null."""
    return json.dumps(to_json_value(value), indent=1, ensure_ascii=False, allow_nan=False)


def to_json_value(value: Any) -> Any:
    """Convert a value to types that JSON has: dataclasses to objects, tuples and sets to arrays, other types to str."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if is_dataclass(value) and not isinstance(value, type):
        return to_json_value(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): to_json_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json_value(inner) for inner in value]
    return value if isinstance(value, str | int | bool | None) else str(value)
