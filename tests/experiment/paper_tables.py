"""Helpers for tests of the experiment files that reproduce the paper's tables."""

from dataclasses import asdict
from pathlib import Path

from hqlt_lab.experiment.validate.arm_checks import build_meta_model
from hqlt_lab.registry import build

PAPER = Path(__file__).parents[2] / "experiments" / "paper"


def flatten_settings(cell):
    """Return all model and train settings by path, and the task."""
    sections = {"model": cell.model, "train": asdict(cell.train)}
    by_path = {f"{section}.{key}": value for section, settings in sections.items() for key, value in settings.items()}
    return by_path | {"task": cell.task}


def changed_settings(reference, other):
    """Return the settings of `other` that differ from those of `reference`."""
    return {
        path: value for path, value in flatten_settings(other).items() if value != flatten_settings(reference)[path]
    }


def count_parameters(cell):
    model = build_meta_model(cell, build("task", cell.task).vocabulary)
    return sum(parameter.numel() for parameter in model.parameters())
