"""What the folder of a cell says about its training: one line of `metrics.jsonl` per logged step.

    {"step": 100, "time": 1763269540.2, "metrics": {"train/loss": 0.69}}

A run that was killed may leave half a line, and one that went on from a checkpoint may have logged a step twice: half
lines are skipped, and the first value of a step stays.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = "metrics.jsonl"


def curve(folder: Path, metric: str) -> dict[int, float]:
    """One metric by step; empty where nothing was logged."""
    file = folder / FILE
    values: dict[int, float] = {}
    for line in file.read_text(errors="replace").splitlines() if file.is_file() else []:
        for step, value in points_of(line, metric):
            values.setdefault(step, value)
    return values


def end_of_curve(folder: Path, metric: str) -> dict[int, float]:
    """The last fifth of the steps: lines are read from the end, because a large study has millions of them."""
    file = folder / FILE
    values: dict[int, float] = {}
    last = 0
    for line in reversed(file.read_text(errors="replace").splitlines() if file.is_file() else []):
        for step, value in points_of(line, metric):
            if step * 10 <= last * 8:
                return dict(sorted(values.items()))
            last = max(last, step)
            values[step] = value  # of a step that was logged twice, the first value stays
    return dict(sorted(values.items()))


def sketch(folder: Path, metric: str, most: int) -> dict[int, float]:
    """At most so many points of the curve, evenly spread, the last one among them; only their lines are read."""
    file = folder / FILE
    text = file.read_text(errors="replace") if file.is_file() else ""
    lines = [line for line in text.splitlines() if f'"{metric}"' in line]
    stride = -(-len(lines) // most) or 1
    return dict(point for line in lines[::-1][::stride] for point in points_of(line, metric))


def points_of(line: str, metric: str) -> list[tuple[int, float]]:
    """The step and the value on one line, if it holds them."""
    try:
        told: Any = json.loads(line)
        step, value = int(told["step"]), float(told["metrics"][metric])
    except (ValueError, KeyError, TypeError):  # half a line, another metric, or no number
        return []
    return [(step, value)] if math.isfinite(value) else []


def late_fall(values: Mapping[int, float]) -> float | None:
    """By which fraction the mean of the last tenth of the steps is below that of the tenth before."""
    end = max(values, default=0)
    last = [value for step, value in values.items() if step * 10 > end * 9]
    before = [value for step, value in values.items() if end * 8 < step * 10 <= end * 9]
    if not last or not before or sum(before) <= 0:
        return None
    return 1 - (sum(last) / len(last)) / (sum(before) / len(before))
