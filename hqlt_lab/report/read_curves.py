"""Read the curve of a metric from `metrics.jsonl` in a cell's folder, whose format `rundir.metrics` defines.

Incomplete lines, which a killed run may leave, are skipped. The writer leaves out steps that a resumed run logs again;
if a step occurs twice nevertheless, its first value is used.
"""

import math
from collections.abc import Mapping
from pathlib import Path

from hqlt_lab.files import decode_json
from hqlt_lab.rundir.metrics import METRICS_FILE


def read_curve(folder: Path, metric: str) -> dict[int, float]:
    """Return the values of one metric by step; empty if it was not logged."""
    file = folder / METRICS_FILE
    values: dict[int, float] = {}
    text = file.read_text(errors="replace") if file.is_file() else ""
    for line in text.splitlines():
        if f'"{metric}"' in line:
            for step, value in parse_points(line, metric):
                values.setdefault(step, value)
    return values


def read_curve_end(folder: Path, metric: str) -> dict[int, float]:
    """Return the values of one metric in the last fifth of the steps.

    Reads lines from the end of the file, because a large study has millions of them.
    """
    file = folder / METRICS_FILE
    values: dict[int, float] = {}
    last = 0
    for line in reversed(file.read_text(errors="replace").splitlines() if file.is_file() else []):
        for step, value in parse_points(line, metric):
            if step * 10 <= last * 8:
                return dict(sorted(values.items()))
            last = max(last, step)
            values[step] = value  # lines are read backwards, so the first value of a repeated step wins
    return dict(sorted(values.items()))


def read_thinned_curve(folder: Path, metric: str, max_points: int) -> dict[int, float]:
    """Return at most `max_points` evenly spaced points of one metric, including the last; parses only their lines."""
    file = folder / METRICS_FILE
    text = file.read_text(errors="replace") if file.is_file() else ""
    lines = [line for line in text.splitlines() if f'"{metric}"' in line]
    stride = -(-len(lines) // max_points) or 1
    return dict(point for line in lines[::-1][::stride] for point in parse_points(line, metric))


def parse_points(line: str, metric: str) -> list[tuple[int, float]]:
    """Return the step and value of a metric on one line, or an empty list if the line has no finite value of it."""
    try:
        entry = decode_json(line, dict, allow_nan=True)
        step, value = int(entry["step"]), float(entry["metrics"][metric])
    except (ValueError, KeyError, TypeError):  # incomplete line, another metric, or not a number
        return []
    return [(step, value)] if math.isfinite(value) else []


def late_decrease(values: Mapping[int, float]) -> float | None:
    """Return the relative decrease of the mean from the second-last to the last tenth of the steps."""
    end = max(values, default=0)
    last = [value for step, value in values.items() if step * 10 > end * 9]
    before = [value for step, value in values.items() if end * 8 < step * 10 <= end * 9]
    if not last or not before or sum(before) <= 0:
        return None
    return 1 - (sum(last) / len(last)) / (sum(before) / len(before))
