"""Evaluations of a trained cell on its fixed splits, and its long-context curves.

evaluations.json    [{"split": "test", "lesion": "fw", "time": 179..., "metrics": {"test/loss": 2.3, ...}}, ...]
long_context.json   [{"name": "loss", "axis": "position", "points": [[64, 3.2], [128, 2.9], ...], "trained": 256,
                      "length_factor": 8, "time": 179...}, ...]
"""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from hqlt_lab.file_lock import locked_update
from hqlt_lab.files import NUMBER, check_numbers, check_types, read_json, translate_damage, write_atomic

EVALUATIONS_FILE = "evaluations.json"
EVALUATION_TYPES: Mapping[str, tuple[type, ...]] = {
    "split": (str,), "lesion": (str, type(None)), "time": (int,), "metrics": (dict,),
}  # fmt: skip
Evaluations = dict[str, dict[str, float]]


class Evaluation(NamedTuple):
    """The metrics of one split, with all memories or without one of them."""

    split: str
    lesion: str | None  # the ablated memory
    time: int  # Unix time in milliseconds, as in MLflow
    metrics: dict[str, float]


def evaluation_name(split: str, lesion: str | None) -> str:
    """Return the name of an evaluation, such as "test" or "test without fw"."""
    return f"{split} without {lesion}" if lesion else split


def list_evaluations(folder: Path) -> list[Evaluation]:
    """Return all evaluations of the cell in this folder."""
    file = folder / EVALUATIONS_FILE
    rows = read_json(file, list, allow_nan=True) if file.exists() else []
    with translate_damage(file):
        for row in rows:
            check_types(row, EVALUATION_TYPES)
            check_numbers(row["metrics"])
        return [Evaluation(**row) for row in rows]


def read_evaluations(folder: Path) -> Evaluations:
    """Return the metrics of all evaluations by name: {"test without fw": {"test/loss": 2.3}}."""
    return {
        evaluation_name(evaluation.split, evaluation.lesion): evaluation.metrics
        for evaluation in list_evaluations(folder)
    }


def write_evaluation(folder: Path, split: str, lesion: str | None, metrics: dict[str, float]) -> None:
    """Add an evaluation to evaluations.json; it replaces an earlier one of the same split and lesion."""
    added = Evaluation(split, lesion, time.time_ns() // 1_000_000, metrics)
    with locked_update(folder / EVALUATIONS_FILE):
        other_evaluations = [
            other for other in list_evaluations(folder) if (other.split, other.lesion) != (split, lesion)
        ]
        rows = [evaluation._asdict() for evaluation in [*other_evaluations, added]]
        write_atomic(folder / EVALUATIONS_FILE, json.dumps(rows, indent=1) + "\n")


LONG_CONTEXT_FILE = "long_context.json"
RULER_PREFIX = "ruler_"  # of the names of curves
CURVE_TYPES: Mapping[str, tuple[type, ...]] = {
    "name": (str,), "axis": (str,), "points": (list,), "trained": (int, type(None)), "length_factor": (int,),
    "time": (int,),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LongContextCurve:
    """A quantity as a function of another (position, length, ...), measured beyond the training range."""

    name: str  # loss, accuracy, needle, milliseconds_per_token, state_bytes, ruler_vt and others
    axis: str  # position, length, pairs, distance, context
    points: list[tuple[int, float]]
    trained: int | None = None  # largest axis value in training; None: not applicable
    length_factor: int = 1  # the requested multiple of the training length
    time: int = 0  # Unix time in milliseconds, as in MLflow

    @property
    def title(self) -> str:
        """Name of the curve, such as "loss_by_position"."""
        return f"{self.name}_by_{self.axis}"

    @property
    def is_ruler(self) -> bool:
        """True for a task of RULER, which is measured separately."""
        return self.name.startswith(RULER_PREFIX)


def read_long_context_curves(folder: Path) -> list[LongContextCurve]:
    """Return all long-context curves of the cell in this folder."""
    file = folder / LONG_CONTEXT_FILE
    if not file.exists():
        return []
    rows = read_json(file, list, allow_nan=True)
    with translate_damage(file):
        for row in rows:
            check_types(row, CURVE_TYPES)
            for x, y in row["points"]:
                check_types({"x": x, "y": y}, {"x": (int,), "y": NUMBER})
        return [LongContextCurve(**{**row, "points": [(x, y) for x, y in row["points"]]}) for row in rows]


def write_long_context_curves(folder: Path, curves: Iterable[LongContextCurve]) -> None:
    """Add curves to long_context.json; each replaces an earlier one of the same title."""
    now = time.time_ns() // 1_000_000
    # `curves` may be a generator that measures, so it is consumed before the lock is taken
    added = {curve.title: asdict(curve) | {"time": now} for curve in curves}
    with locked_update(folder / LONG_CONTEXT_FILE):
        merged = {curve.title: asdict(curve) for curve in read_long_context_curves(folder)} | added
        write_atomic(folder / LONG_CONTEXT_FILE, json.dumps(list(merged.values()), indent=1) + "\n")
