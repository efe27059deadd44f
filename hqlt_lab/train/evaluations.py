"""What a trained cell scored when it was asked again: on another set, or with one memory lesioned.

    {"test": {"test/normalised_accuracy": 98.1, ...}, "test without fw": {"test/normalised_accuracy": 2.3, ...}}

In a file of the cell's folder, with the time of each, readable without torch.
"""

import json
import time
from pathlib import Path
from typing import NamedTuple

from hqlt_lab.files import changing, read_json, write

FILE = "evaluations.json"
Evaluations = dict[str, dict[str, float]]


class Evaluation(NamedTuple):
    """One of them."""

    split: str
    lesion: str | None  # the memory that was silent
    time: int  # milliseconds since 1970, as MLflow counts
    metrics: dict[str, float]


def name_of(split: str, lesion: str | None) -> str:
    """What an evaluation is called."""
    return f"{split} without {lesion}" if lesion else split


def evaluations_in(folder: Path) -> list[Evaluation]:
    """All that were made of the cell in this folder."""
    file = folder / FILE
    return [Evaluation(**told) for told in read_json(file)] if file.exists() else []


def read_evaluations(folder: Path) -> Evaluations:
    """The same by name: "test without fw" -> metrics."""
    return {name_of(one.split, one.lesion): one.metrics for one in evaluations_in(folder)}


def write_evaluation(folder: Path, split: str, lesion: str | None, metrics: dict[str, float]) -> None:
    """Add one, or replace what was known under its name."""
    made = Evaluation(split, lesion, time.time_ns() // 1_000_000, metrics)
    with changing(folder / FILE):
        others = [one for one in evaluations_in(folder) if (one.split, one.lesion) != (split, lesion)]
        write(folder / FILE, json.dumps([one._asdict() for one in [*others, made]], indent=1) + "\n")
