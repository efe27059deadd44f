"""Numbers for people, and anything for programs."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

DAY, YEAR = 86_400, 31_557_600  # seconds


def in_time(seconds: float, places: int = 3) -> str:
    """42 s, 3 min, 2.5 h, 4 d, 85 years"""
    for unit, size, next_size in (("s", 1, 90), ("min", 60, 5400), ("h", 3600, 172800), ("d", DAY, 2 * YEAR)):
        if seconds < next_size:
            return f"{digits(seconds / size, places)} {unit}"
    return f"{digits(seconds / YEAR, places)} years"


def about(seconds: float) -> str:
    """An estimate, which is not known to three digits: less than a second, about 40 s, about 2.5 h"""
    return f"about {in_time(seconds, places=2)}" if seconds >= 1 else "less than a second"


def in_bytes(size: float) -> str:
    """12 kB, 3.4 MB, 1.2 GB"""
    return scaled(size, 1000, ("B", "kB", "MB", "GB", "TB", "PB"))


def in_numbers(count: float) -> str:
    """950, 595k, 399M, 1.47B"""
    return scaled(count, 1000, ("", "k", "M", "B", "T")).replace(" ", "")


def scaled(value: float, base: int, units: tuple[str, ...]) -> str:
    for unit in units[:-1]:
        if value < base:
            return f"{digits(value)} {unit}"
        value /= base
    return f"{digits(value)} {units[-1]}"


def digits(value: float, places: int = 3) -> str:
    """So many of them, or all that stand before the point; never a power of ten."""
    return f"{value:.{places}g}" if value < 10**places - 0.5 else f"{value:,.0f}"


def in_json(thing: Any) -> str:
    """One JSON document; what is no number (nan, infinity) is null, which is all that JSON has for it."""
    return json.dumps(plain(thing), indent=1, ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """Only what JSON has."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(inner) for inner in value]
    return value if isinstance(value, str | int | bool | None) else str(value)
