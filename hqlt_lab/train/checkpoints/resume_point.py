"""The checkpoint from which a run resumes: the newest readable one, or step 0.

Corrupt checkpoints are renamed to *.damaged.
"""

import errno
import json
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.rundir.cell_file import ensure_same_cell, settings_of_folder
from hqlt_lab.train.checkpoints.checkpoint_io import (
    BEST_CHECKPOINT,
    CORRUPTION_ERRORS,
    LAST_CHECKPOINT,
    PREVIOUS_CHECKPOINT,
    corruption_reason,
    decode_cell,
    read_checkpoint,
)
from hqlt_lab.train.trainer_state import TrainerState

logger = logging.getLogger(__name__)


class ResumePoint(NamedTuple):
    """Where training starts: at a checkpoint, or at step 0 without one."""

    checkpoint: Path | None
    step: int
    trainer_state: TrainerState


def find_resume_point(folder: Path, cell: Cell) -> ResumePoint:
    """Return the newest readable checkpoint, or step 0.  Corrupt ones are renamed and mentioned in the notes."""
    notes: list[str] = []
    for name in (LAST_CHECKPOINT, PREVIOUS_CHECKPOINT):
        checkpoint = try_read_checkpoint(folder / name, notes)
        if checkpoint and has_best_weights(folder, cell, checkpoint, notes):
            ensure_same_cell(folder, decode_cell(checkpoint["cell"]), decode_cell(json.dumps(cell.to_dict())))
            step, trainer_state = checkpoint["global_step"], TrainerState(**checkpoint["trainer_state"])
            trainer_state.notes += log_notes(notes, f"The run resumes from {name}, step {step}.")
            return ResumePoint(folder / name, step, trainer_state)
    # a readable checkpoint whose best weights are corrupt must go too: the new run will find other best weights
    for name in (LAST_CHECKPOINT, PREVIOUS_CHECKPOINT) if notes else ():
        rename_corrupt_file(folder / name)
    return ResumePoint(None, 0, TrainerState(notes=log_notes(notes, "The run starts from the beginning.")))


def has_best_weights(folder: Path, cell: Cell, checkpoint: dict[str, Any], notes: list[str]) -> bool:
    """Return whether best.ckpt is readable or not needed.  Without it, a run that reports the best must start again."""
    if (
        cell.train.report != "best_valid"
        or not checkpoint["trainer_state"]["best"]
        or try_read_checkpoint(folder / BEST_CHECKPOINT, notes)
    ):
        return True
    notes.append("The best weights so far are missing.")
    return False


def try_read_checkpoint(path: Path, notes: list[str]) -> dict[str, Any] | None:
    """Return the content of a checkpoint, or None if it is missing or corrupt.  A corrupt one is renamed and noted."""
    if not path.exists():
        return None
    try:
        checkpoint = read_checkpoint(path)
        TrainerState(**checkpoint["trainer_state"])
        settings_of_folder(decode_cell(checkpoint["cell"]))
    except CORRUPTION_ERRORS as error:
        if is_transient_error(error):
            raise
        notes.append(f"{path.name} could not be read ({corruption_reason(error)}) and was set aside.")
        rename_corrupt_file(path)
        return None
    return checkpoint


def is_transient_error(error: BaseException) -> bool:
    """Return whether the machine is the cause (a failing disk, too little memory) and not the file."""
    if isinstance(error, OSError):  # in a file that is too short, seeking to a negative offset gives EINVAL
        return error.errno not in (None, errno.EINVAL, errno.ENOENT)
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)


def log_notes(notes: list[str], consequence: str) -> list[str]:
    """Log the notes and their consequence, and return them; without notes, return none."""
    notes = [*notes, consequence] if notes else []
    for note in notes:
        logger.warning(note)
    return notes


def rename_corrupt_file(path: Path) -> None:
    """Rename a corrupt checkpoint to *.damaged, so that it never becomes previous.ckpt."""
    with suppress(FileNotFoundError):  # another process has renamed it already
        os.replace(path, path.with_suffix(".damaged"))
