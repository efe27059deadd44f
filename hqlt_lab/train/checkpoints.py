"""Checkpoints: saved whole or not at all, and the one before is kept until the run has ended.

    last.ckpt       where to go on
    previous.ckpt   the same, one saving earlier, should the last one be damaged
    best.ckpt       the weights that did best on the validation set

All are loadable with weights_only=True and hold the cell: state_dict has the weights as model.*.  They are read in no
other way: a checkpoint that asks for anything but tensors and plain values is not run, and counts as damaged.  To an
archive's own sums comes one of all its bytes, as its comment: a flipped bit in the table of contents can make torch
read noise.
"""

import errno
import io
import json
import os
import pickle
import struct
import sys
import zipfile
import zlib
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.plugins import TorchCheckpointIO

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.files import begin, put
from hqlt_lab.train.claim import same_cell
from hqlt_lab.train.progress import Progress

LAST, PREVIOUS, BEST = "last.ckpt", "previous.ckpt", "best.ckpt"
PIECE = 2**24  # bytes that are read at once
DAMAGED = (
    RuntimeError, OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, pickle.UnpicklingError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip


class InPlace(TorchCheckpointIO):
    """Writes where it is told to; Lightning's own first fills the disk of temporary files, which may be a small one."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        save(checkpoint, Path(path))


def save(checkpoint: dict[str, Any], written: Path) -> None:
    """Write it whole, or leave nothing."""
    content = io.BytesIO()
    torch.save(checkpoint, content)
    mark = b"%08x" % zlib.crc32(content.getbuffer()[:-2])
    content.seek(-2, os.SEEK_END)  # the last two bytes say how long the comment is
    content.write(struct.pack("<H", len(mark)) + mark)
    begin(written, content.getbuffer())


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
    save(checkpoint, written)
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
    save(checkpoint, written)
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
    """The newest checkpoint that can be read, or the very beginning; what is damaged is told."""
    notes: list[str] = []
    for name in (LAST, PREVIOUS):
        if (stored := tried(folder / name, notes)) and has_best(folder, cell, stored, notes):
            same_cell(folder, json.loads(stored["cell"]), json.loads(json.dumps(cell.as_dict())))
            step, progress = stored["global_step"], Progress(**stored["progress"])
            progress.notes += told(notes, f"The run goes on from {name}, which is of step {step}.")
            return Start(folder / name, step, progress)
    for name in (LAST, PREVIOUS) if notes else ():  # one that can be read lacks its best weights, which will be others
        set_aside(folder / name)
    return Start(None, 0, Progress(notes=told(notes, "The run begins anew.")))


def has_best(folder: Path, cell: Cell, stored: dict[str, Any], notes: list[str]) -> bool:
    """Whether the best weights so far are there, if they will be asked for: only a run from the start finds them."""
    if cell.train.report != "best_valid" or not stored["progress"]["best"] or tried(folder / BEST, notes):
        return True
    notes.append("The best weights so far are not there.")
    return False


def tried(path: Path, notes: list[str]) -> dict[str, Any] | None:
    """What a checkpoint holds; None if it is not there, or damaged, which is noted."""
    if not path.exists():
        return None
    try:
        stored = read(path)
        Progress(**stored["progress"])
    except DAMAGED as error:
        if passing(error):
            raise
        notes.append(f"{path.name} could not be read ({why(error)}) and was set aside.")
        set_aside(path)
        return None
    return stored


def passing(error: BaseException) -> bool:
    """Whether it is the machine's trouble of the moment: a disk or a memory that fails, not a file."""
    if isinstance(error, OSError):  # a file that is too short is asked for a place before its beginning
        return error.errno not in (None, errno.EINVAL, errno.ENOENT)
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)


def told(notes: list[str], then: str) -> list[str]:
    """What was damaged and what follows, also for the run's log."""
    notes = [*notes, then] if notes else []
    for note in notes:
        print(note, file=sys.stderr, flush=True)
    return notes


def read(path: Path) -> dict[str, Any]:
    """A checkpoint whose every byte is as it was written, which torch.load alone does not look at."""
    with zipfile.ZipFile(path) as archive:
        if packed := [one.filename for one in archive.infolist() if one.compress_type != zipfile.ZIP_STORED]:
            raise zipfile.BadZipFile(f"{packed[0]} is compressed")  # torch never does: a few bytes may be terabytes
        mark, damaged = archive.comment, None if archive.comment else archive.testzip()
    if damaged or (mark and mark != mark_of(path, path.stat().st_size - 2 - len(mark))):
        raise zipfile.BadZipFile(str(path))
    return torch.load(path, map_location="cpu", weights_only=True)


def mark_of(path: Path, size: int) -> bytes:
    """The sum of so many bytes."""
    made = 0
    with path.open("rb") as file:
        while piece := file.read(min(PIECE, size)):
            made, size = zlib.crc32(piece, made), size - len(piece)
    return b"%08x" % made


def why(error: BaseException) -> str:
    """What is wrong with a checkpoint, in a word; who tampered with one is told that nothing of it was run."""
    name = type(error).__name__
    return f"{name}: it holds more than weights, none of which was run" if name == "UnpicklingError" else name


def set_aside(path: Path) -> None:
    """Keep a damaged checkpoint from replacing a good one."""
    with suppress(FileNotFoundError):  # another process was faster
        os.replace(path, path.with_suffix(".damaged"))
