"""Load a trained model from its run folder."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from torch import Tensor, nn

from hqlt_lab.agent.networks import Agent
from hqlt_lab.errors import TrainingError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.registry import build
from hqlt_lab.rundir.cell_file import read_cell
from hqlt_lab.tasks._base import Task
from hqlt_lab.tasks.text.language import Language
from hqlt_lab.train.checkpoints.checkpoint_io import (
    BEST_CHECKPOINT,
    CORRUPTION_ERRORS,
    LAST_CHECKPOINT,
    corruption_reason,
    read_checkpoint,
)
from hqlt_lab.train.fit import build_model
from hqlt_lab.train.per_memory_training import set_evaluation_step
from hqlt_lab.train.rl.sac_trainer import build_agent


class LoadedCell(NamedTuple):
    """A trained model and its task."""

    model: SequenceModel | Agent  # in eval mode, with the trained weights; an agent if the task is an environment
    task: Task


def load_cell(folder: Path) -> LoadedCell:
    """Return the trained model and the task of the cell in this folder."""
    return restore_model(folder, read_cell(folder))


class LoadedLanguageModel(NamedTuple):
    """A trained language model and its task."""

    model: SequenceModel
    task: Language


def load_language_model(folder: Path) -> LoadedLanguageModel:
    """Return the trained language model in this folder, not compiled, because prompts have varying lengths.

    Raise TrainingError if the cell was trained on another task.
    """
    cell = read_cell(folder)
    if cell.task["name"] != "language":
        raise TrainingError(
            f"{folder}: this cell was trained on {cell.task['name']!r}. A cell trained on 'language' is needed."
        )
    loaded = restore_model(folder, replace(cell, train=replace(cell.train, compile=False, recompute=False)))
    assert isinstance(loaded.task, Language) and isinstance(loaded.model, SequenceModel)
    return LoadedLanguageModel(loaded.model, loaded.task)


def restore_model(folder: Path, cell: Cell) -> LoadedCell:
    """Build the model of a cell and load the weights in the folder."""
    task = build("task", cell.task)
    model = build_agent(cell, task) if task.is_environment else build_model(cell, task)
    load_weights(model, folder, cell)
    return LoadedCell(model.eval(), task)


class TrainedWeights(NamedTuple):
    """Weights of a checkpoint."""

    weights: dict[str, Tensor]  # by parameter name
    step: int  # steps of training that they have


def load_weights(model: nn.Module, folder: Path, cell: Cell) -> None:
    """Load the weights in the folder into a model or an agent, whose memories are silent as they were at that step."""
    trained = read_weights(folder, cell)
    model.load_state_dict(trained.weights)
    set_evaluation_step(model, cell.train, trained.step)


def read_weights(folder: Path, cell: Cell) -> TrainedWeights:
    """Return the weights in the folder.  Raise TrainingError if they are missing or corrupt."""
    preferred = BEST_CHECKPOINT if cell.train.report == "best_valid" else LAST_CHECKPOINT
    for name in (preferred, LAST_CHECKPOINT, BEST_CHECKPOINT):
        if (folder / name).exists():
            try:
                checkpoint = read_checkpoint(folder / name)
                weights, step = checkpoint["state_dict"], checkpoint["global_step"]
            except CORRUPTION_ERRORS as error:
                raise TrainingError(
                    f"{folder / name}: the file cannot be read ({corruption_reason(error)})."
                ) from error
            return TrainedWeights({key.removeprefix("model."): value for key, value in weights.items()}, step)
    raise TrainingError(
        f"{folder}: there are no weights in this folder (train.keep is {cell.train.keep!r}). Train the cell again."
    )
