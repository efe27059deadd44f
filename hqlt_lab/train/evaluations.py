"""What a trained cell scored when it was asked again: on another set, or with one memory lesioned.

    {"test": {"test/normalised_accuracy": 98.1, ...}, "test without fw": {"test/normalised_accuracy": 2.3, ...}}

In a file of the cell's folder, readable without torch.
"""

import json
from pathlib import Path

from hqlt_lab.train.files import write

FILE = "evaluations.json"
Evaluations = dict[str, dict[str, float]]


def name_of(split: str, lesion: str | None) -> str:
    """What an evaluation is called."""
    return f"{split} without {lesion}" if lesion else split


def read_evaluations(folder: Path) -> Evaluations:
    """All that were made of the cell in this folder."""
    file = folder / FILE
    return json.loads(file.read_text()) if file.exists() else {}


def write_evaluations(folder: Path, found: Evaluations) -> None:
    """Add some, or replace those of the same name."""
    write(folder / FILE, json.dumps(read_evaluations(folder) | found, indent=1) + "\n")
