"""The files of the paper's tables, and what their cells are made of."""

from dataclasses import asdict
from pathlib import Path

from hqlt_lab.experiment.composition import on_meta
from hqlt_lab.registry import build

PAPER = Path(__file__).parents[2] / "experiments" / "paper"


def settings(cell):
    """model.timing: {name: synchronous, window: 8}, and so on."""
    sections = {"model": cell.model, "train": asdict(cell.train)}
    named = {f"{section}.{key}": value for section, told in sections.items() for key, value in told.items()}
    return named | {"task": cell.task}


def difference(plain, other):
    """What the other is told that the first is not."""
    return {path: value for path, value in settings(other).items() if value != settings(plain)[path]}


def parameters(cell):
    model = on_meta(cell, build("task", cell.task).vocabulary)
    return sum(parameter.numel() for parameter in model.parameters())
