"""Numbers and names as people read them."""

from collections.abc import Mapping, Sequence
from typing import Any

from hqlt_lab.experiment.change import short, spelled_value
from hqlt_lab.experiment.evaluation import PERCENT


def shown(value: Any, metric: str = "") -> str:
    """A percentage with one decimal, other numbers with four digits, everything else in a word."""
    if isinstance(value, int | float) and not isinstance(value, bool) and is_percentage(metric):
        return f"{round(value, 1) + 0.0:.1f}"  # + 0.0: there is no -0.0 %
    return f"{value:.4g}" if isinstance(value, float) else spelled_value(value)


def is_percentage(metric: str) -> bool:
    """Accuracies, by our names and by lm-eval's."""
    name = metric.rpartition("eval/")[2].split("/")[-1]
    return "accuracy" in metric or ("eval/" in metric and name in (*PERCENT, "average"))


def signed(value: float | None, metric: str = "") -> str:
    """A difference: +1.5, -0.2, and 0.0 where nothing but rounding is left."""
    told = shown(value, metric)
    if value and float(told) == 0:
        told = f"{value:.2g}"  # small, but not nothing
    return told if value is None or value <= 0 or float(told) == 0 else f"+{told}"


def chance(p: float | None) -> str:
    """A p: two digits, and a dash where there is none."""
    return "–" if p is None else "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def tuned(point: Mapping[str, Any]) -> str:
    """lr=0.001, window=8"""
    return ", ".join(f"{short(path, point)}={shown(value)}" for path, value in point.items())


def spoken(title: str) -> str:
    """delta, timing=synchronous, mixer=sum -> delta (timing=synchronous, mixer=sum): its commas are not a list's."""
    name, comma, levels = title.partition(", ")
    return f"{name} ({levels})" if comma else title


def joined(names: Sequence[str], most: int) -> str:
    """a, b and c; of more than `most` the first three and how many more."""
    kept = list(names) if len(names) <= most else [*names[:3], f"{len(names) - 3} more"]
    return " and ".join([", ".join(kept[:-1]), kept[-1]] if len(kept) > 1 else kept)


def counted(count: int, noun: str) -> str:
    """1 cell, 2 cells"""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def between(low: int, high: int) -> str:
    """300, or 120 to 300"""
    return str(low) if low == high else f"{low} to {high}"
