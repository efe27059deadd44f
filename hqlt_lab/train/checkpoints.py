"""Checkpoints: saved whole or not at all, and the one before is kept until the run has ended.

    last.ckpt       where to go on
    previous.ckpt   the same, one saving earlier, should the last one be damaged
    best.ckpt       the weights that did best on the validation set

All are loadable with weights_only=True and hold the cell: state_dict has the weights as model.*.
"""

import json
import os
import pickle
import zipfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lightning.pytorch import Trainer

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.files import put
from hqlt_lab.train.claim import same_cell
from hqlt_lab.train.progress import Progress

LAST, PREVIOUS, BEST = "last.ckpt", "previous.ckpt", "best.ckpt"
DAMAGED = (RuntimeError, OSError, EOFError, ValueError, KeyError, pickle.UnpicklingError, zipfile.BadZipFile)


class Start(NamedTuple):
    """Where a run begins."""

    checkpoint: Path | None
    step: int
    progress: Progress


def save_last(trainer: Trainer, folder: Path) -> None:
    """Save where to go on; every process must ask."""
    written = folder / f"{LAST}.writing"
    trainer.save_checkpoint(written)
    if trainer.is_global_zero:
        become_last(written, folder)


def put_last(checkpoint: dict[str, Any], folder: Path) -> None:
    """The same for a run without Lightning's trainer."""
    written = folder / f"{LAST}.writing"
    torch.save(checkpoint, written)
    become_last(written, folder)


def become_last(written: Path, folder: Path) -> None:
    """Where to go on is there; what was, is the one before."""
    if (folder / LAST).exists():
        os.replace(folder / LAST, folder / PREVIOUS)
    put(written, folder / LAST)


def save_best(trainer: Trainer, folder: Path) -> None:
    """Save the weights alone; every process must ask."""
    written = folder / f"{BEST}.writing"
    trainer.save_checkpoint(written, weights_only=True)
    if trainer.is_global_zero:
        put(written, folder / BEST)


def put_best(checkpoint: dict[str, Any], folder: Path) -> None:
    """The same for a run without Lightning's trainer."""
    written = folder / f"{BEST}.writing"
    torch.save(checkpoint, written)
    put(written, folder / BEST)


def sign(checkpoint: dict[str, Any], cell: Cell, progress: Progress) -> None:
    """Write into a checkpoint whose it is and how far the run has come."""
    checkpoint |= {"cell": json.dumps(cell.as_dict()), "progress": asdict(progress)}


def recount(checkpoint: dict[str, Any], pieces: int) -> None:
    """Let Lightning count in the pieces of today, so that a run may go on with others than it was saved with."""
    done = checkpoint["global_step"] * pieces
    progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
    for counts in (progress["total"], progress["current"]):
        # saved at the end of a piece, which Lightning counts as complete only afterwards
        counts |= {"ready": done, "started": done, "processed": done, "completed": done - 1}


def start_from(folder: Path, cell: Cell) -> Start:
    """The newest checkpoint that can be read, or the very beginning."""
    notes: list[str] = []
    for name in (LAST, PREVIOUS):
        if (folder / name).exists():
            try:
                stored = read(folder / name)
                progress = Progress(**stored["progress"])
            except DAMAGED as error:
                notes.append(f"{name} could not be read ({type(error).__name__}) and was set aside.")
                set_aside(folder / name)
                continue
            same_cell(folder, json.loads(stored["cell"]), json.loads(json.dumps(cell.as_dict())))
            progress.notes += notes
            return Start(folder / name, stored["global_step"], progress)
    return Start(None, 0, Progress(notes=notes))


def read(path: Path) -> dict[str, Any]:
    """A checkpoint whose every byte is as it was written, which torch.load alone does not look at."""
    if damaged := zipfile.ZipFile(path).testzip():
        raise zipfile.BadZipFile(damaged)
    return torch.load(path, map_location="cpu", weights_only=True)


def set_aside(path: Path) -> None:
    """Keep a damaged checkpoint from replacing a good one."""
    with suppress(FileNotFoundError):  # another process was faster
        os.replace(path, path.with_suffix(".damaged"))


def tidy(folder: Path, keep: str) -> None:
    """Leave the checkpoint that is asked for."""
    for name in {LAST, PREVIOUS, BEST} - {f"{keep}.ckpt"}:
        (folder / name).unlink(missing_ok=True)
