"""Format numbers, names and counts for reports."""

from collections.abc import Mapping, Sequence
from typing import Any

from hqlt_lab.experiment.apply_overrides import format_value, short_path
from hqlt_lab.experiment.arm_title import ArmTitle
from hqlt_lab.stats.metric_scale import is_percentage


def format_rounded(value: Any, metric: str = "") -> str:
    """Format a percentage with one decimal, other floats with four significant digits, other values as in YAML."""
    if isinstance(value, int | float) and not isinstance(value, bool) and is_percentage(metric):
        return f"{round(value, 1) + 0.0:.1f}"  # + 0.0 turns -0.0 into 0.0
    return f"{value:.4g}" if isinstance(value, float) else format_value(value)


def format_signed(value: float | None, metric: str = "") -> str:
    """Format a difference with its sign: +1.5, -0.2, 0.0. Differences that would round to 0 get two digits."""
    text = format_rounded(value, metric)
    if value and float(text) == 0:
        text = f"{value:.2g}"
    return text if value is None or value <= 0 or float(text) == 0 else f"+{text}"


def format_p_value(p: float | None) -> str:
    """Format a p-value with two digits; a dash for None."""
    return "–" if p is None else "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def format_point(point: Mapping[str, Any]) -> str:
    """Return e.g. "lr=0.001, window=8"."""
    return ", ".join(f"{short_path(path, point)}={format_rounded(value)}" for path, value in point.items())


def format_arm_title(title: ArmTitle) -> str:
    """Return a title for a sentence, such as "delta (timing=synchronous, mixer=sum)"; a name with a comma in quotes."""
    name = f'"{title.name}"' if "," in title.name else title.name
    return f"{name} ({', '.join(title.level_labels)})" if title.levels else name


def join_names(names: Sequence[str], max_names: int) -> str:
    """Return e.g. "a, b and c"; with more than `max_names` names, the first three and the number of others."""
    shown = list(names) if len(names) <= max_names else [*names[:3], f"{len(names) - 3} more"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def join_names_with_value(values: Mapping[str, float], value: float, metric: str) -> str:
    """Return the names whose value is this one after rounding, e.g. "a and b"; of more than three, the first three."""
    text = format_rounded(value, metric)
    return join_names([name for name, other in values.items() if format_rounded(other, metric) == text], 3)


def format_range(low: int, high: int) -> str:
    """Return e.g. "300" or "120 to 300"."""
    return str(low) if low == high else f"{low} to {high}"
