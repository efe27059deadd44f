"""Checkpoint files: written atomically, checksummed, and loaded without executing code.

    last.ckpt       the state to resume from
    previous.ckpt   the checkpoint before it, in case the last one is corrupt; kept until the run ends
    best.ckpt       the weights with the best validation metric

A checkpoint has the cell, and under state_dict the weights as model.*.  Checkpoints are only loaded with
weights_only=True: one that contains anything but tensors and plain values is not unpickled and counts as corrupt.
The zip comment holds a checksum of the whole file, because the archive's own checksums do not cover its directory: a
flipped bit there can make torch read wrong data.
"""

import io
import json
import os
import pickle
import struct
import zipfile
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.plugins import TorchCheckpointIO

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.files import commit_temp, decode_json, write_temp
from hqlt_lab.train.trainer_state import TrainerState

LAST_CHECKPOINT, PREVIOUS_CHECKPOINT, BEST_CHECKPOINT = "last.ckpt", "previous.ckpt", "best.ckpt"
CHECKSUM_CHUNK_BYTES = 2**24
CORRUPTION_ERRORS = (
    RuntimeError, OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, pickle.UnpicklingError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip


class DirectCheckpointIO(TorchCheckpointIO):
    """Writes directly to the target path; Lightning's own writes to the temporary directory, which may be small."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        write_checkpoint(checkpoint, Path(path))


def write_checkpoint(checkpoint: dict[str, Any], path: Path) -> None:
    """Write a checkpoint with its checksum.  If the disk is full, no partial file is left."""
    content = io.BytesIO()
    torch.save(checkpoint, content)
    checksum = b"%08x" % zlib.crc32(content.getbuffer()[:-2])
    content.seek(-2, os.SEEK_END)  # the last two bytes are the length of the zip comment
    content.write(struct.pack("<H", len(checksum)) + checksum)
    write_temp(path, content.getbuffer())


def save_last_checkpoint(trainer: Trainer, folder: Path) -> None:
    """Save the state of a Lightning trainer as last.ckpt.  Collective: every process must call it."""
    temp_path = folder / f"{LAST_CHECKPOINT}.writing"
    trainer.save_checkpoint(temp_path)
    if trainer.is_global_zero:
        promote_to_last(temp_path, folder)


def write_last_checkpoint(checkpoint: dict[str, Any], folder: Path) -> None:
    """Write a checkpoint as last.ckpt, for a run without a Lightning trainer."""
    temp_path = folder / f"{LAST_CHECKPOINT}.writing"
    write_checkpoint(checkpoint, temp_path)
    promote_to_last(temp_path, folder)


def promote_to_last(temp_path: Path, folder: Path) -> None:
    """Rename last.ckpt to previous.ckpt, and the completely written temporary file to last.ckpt."""
    if (folder / LAST_CHECKPOINT).exists():
        os.replace(folder / LAST_CHECKPOINT, folder / PREVIOUS_CHECKPOINT)
    commit_temp(temp_path, folder / LAST_CHECKPOINT)


def save_best_weights(trainer: Trainer, folder: Path) -> None:
    """Save the weights of a Lightning trainer as best.ckpt.  Collective: every process must call it."""
    temp_path = folder / f"{BEST_CHECKPOINT}.writing"
    trainer.save_checkpoint(temp_path, weights_only=True)
    if trainer.is_global_zero:
        commit_temp(temp_path, folder / BEST_CHECKPOINT)


def write_best_weights(checkpoint: dict[str, Any], folder: Path) -> None:
    """Write a checkpoint as best.ckpt, for a run without a Lightning trainer."""
    temp_path = folder / f"{BEST_CHECKPOINT}.writing"
    write_checkpoint(checkpoint, temp_path)
    commit_temp(temp_path, folder / BEST_CHECKPOINT)


def attach_metadata(checkpoint: dict[str, Any], cell: Cell, trainer_state: TrainerState) -> None:
    """Add the cell and the state of the run to a checkpoint."""
    checkpoint |= {"cell": json.dumps(cell.to_dict()), "trainer_state": asdict(trainer_state)}


def decode_cell(cell_json: str) -> dict[str, Any]:
    """Return the settings of the cell of a checkpoint.  Raise ValueError if they are damaged."""
    return decode_json(cell_json, dict, allow_nan=True)


def rescale_progress(checkpoint: dict[str, Any], accumulate: int) -> None:
    """Convert Lightning's batch counters to the current `accumulate`, which may have changed since saving."""
    done = checkpoint["global_step"] * accumulate
    progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
    for counts in (progress["total"], progress["current"]):
        # saved at the end of a micro-batch, before Lightning counts it as completed
        counts |= {"ready": done, "started": done, "processed": done, "completed": done - 1}


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Load a checkpoint after verifying its checksum, which torch.load does not do."""
    with zipfile.ZipFile(path) as archive:
        if compressed := [info.filename for info in archive.infolist() if info.compress_type != zipfile.ZIP_STORED]:
            raise zipfile.BadZipFile(f"{compressed[0]} is compressed")  # torch never compresses: this may be a zip bomb
        checksum, corrupt_entry = archive.comment, None if archive.comment else archive.testzip()
    if corrupt_entry or (checksum and checksum != compute_checksum(path, path.stat().st_size - 2 - len(checksum))):
        raise zipfile.BadZipFile(str(path))
    return torch.load(path, map_location="cpu", weights_only=True)


def compute_checksum(path: Path, size: int) -> bytes:
    """Return the CRC-32 of the first `size` bytes of a file, in hexadecimal."""
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(min(CHECKSUM_CHUNK_BYTES, size)):
            checksum, size = zlib.crc32(chunk, checksum), size - len(chunk)
    return b"%08x" % checksum


def corruption_reason(error: BaseException) -> str:
    """Return a short reason why a checkpoint is unreadable; for a pickle with code, that nothing of it was run."""
    name = type(error).__name__
    return f"{name}: contains more than weights; no code in it was run" if name == "UnpicklingError" else name
