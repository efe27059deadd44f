"""A trained model, from its folder."""

import json
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from hqlt_lab.agent.networks import Agent
from hqlt_lab.errors import HqltError, TrainingError
from hqlt_lab.experiment.cell import Cell, cell_from
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.registry import build
from hqlt_lab.tasks._base import Task
from hqlt_lab.tasks.language import Language
from hqlt_lab.train.checkpoints import BEST, DAMAGED, LAST, read, why
from hqlt_lab.train.claim import FILE
from hqlt_lab.train.fit import build_model
from hqlt_lab.train.life import build_agent


class Loaded(NamedTuple):
    """What a cell became."""

    model: SequenceModel | Agent  # with the trained weights, ready to be used; an agent where the task is a world
    task: Task


def load_cell(folder: Path) -> Loaded:
    """The weights that were kept, in the model that the cell describes."""
    return restored(folder, cell_in(folder))


class Speaker(NamedTuple):
    """What a cell became that learned a text."""

    model: SequenceModel
    task: Language


def load_language(folder: Path) -> Speaker:
    """The same of a cell whose task is a text; never compiled, as texts come in every length."""
    cell = cell_in(folder)
    if cell.task["name"] != "language":
        raise TrainingError(
            f"{folder}: this cell has learned {cell.task['name']!r}, which is no text. "
            "A cell whose task is 'language' is needed."
        )
    found = restored(folder, replace(cell, train=replace(cell.train, compile=False, recompute=False)))
    assert isinstance(found.task, Language) and isinstance(found.model, SequenceModel)
    return Speaker(found.model, found.task)


def restored(folder: Path, cell: Cell) -> Loaded:
    """The model of this cell with the folder's weights."""
    task = build("task", cell.task)
    model = build_agent(cell, task) if task.is_world else build_model(cell, task)
    model.load_state_dict(weights_in(folder, cell))
    return Loaded(model.eval(), task)


def cell_in(folder: Path) -> Cell:
    """Whose folder it is."""
    file = folder / FILE
    try:
        cell = cell_from(json.loads(file.read_text()))
        if not isinstance(cell.task, dict) or not isinstance(cell.model, dict) or "name" not in cell.task:
            raise TypeError("task and model are mappings")
    except HqltError as error:
        raise TrainingError(f"{file}: {error}") from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise TrainingError(f"{file}: it describes no cell ({type(error).__name__}: {error}).") from error
    return cell


def weights_in(folder: Path, cell: Cell) -> dict[str, Tensor]:
    """Those that were kept, by their names in the model."""
    first = BEST if cell.train.report == "best_valid" else LAST
    for name in (first, LAST, BEST):
        if (folder / name).exists():
            try:
                weights = read(folder / name)["state_dict"]
            except DAMAGED as error:
                raise TrainingError(f"{folder / name}: cannot be read ({why(error)}).") from error
            return {key.removeprefix("model."): value for key, value in weights.items()}
    raise TrainingError(f"{folder}: no weights are kept here (train.keep is {cell.train.keep!r}). Train it again.")
