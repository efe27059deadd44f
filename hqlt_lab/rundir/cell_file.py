"""cell.json: the settings of the cell that a run folder belongs to.

training.lock           held while the cell trains; its content names the process that took it last
training.lock.waiting   exists while another process waits for it
"""

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from hqlt_lab.errors import HqltError, StoreError, TrainingError
from hqlt_lab.experiment.cell import SETTINGS_NOT_IN_KEY, Cell, cell_from_dict
from hqlt_lab.file_lock import LockHeld, describe_process, file_lock, read_holder
from hqlt_lab.files import read_json, write_atomic

CELL_FILE = "cell.json"
TRAINING_LOCK_FILE = "training.lock"
LOCK_WAIT_FILE = "training.lock.waiting"
TRAINING_LOCK_TIMEOUT = 120.0  # seconds in which a stopped process can save a large checkpoint
logger = logging.getLogger(__name__)


def write_cell(folder: Path, cell: Cell) -> None:
    """Write the cell into its folder, creating the folder.  Raise TrainingError if it belongs to another cell."""
    folder.mkdir(parents=True, exist_ok=True)
    file, text = folder / CELL_FILE, json.dumps(cell.to_dict(), indent=1)
    stored, current = read_json(file, dict, allow_nan=True) if file.exists() else None, json.loads(text)
    ensure_same_cell(folder, stored or current, current)
    if stored != current:
        write_atomic(file, text)


def read_cell(folder: Path) -> Cell:
    """Return the cell of a run folder.  Raise TrainingError if its cell.json does not describe a cell."""
    file = folder / CELL_FILE
    try:
        cell = cell_from_dict(read_json(file, dict, allow_nan=True))
        if not isinstance(cell.task, dict) or not isinstance(cell.model, dict) or "name" not in cell.task:
            raise TypeError("task and model are mappings")
    except StoreError as error:
        raise TrainingError(str(error)) from error
    except HqltError as error:
        raise TrainingError(f"{file}: {error}") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise TrainingError(f"{file}: the file does not describe a cell ({type(error).__name__}: {error}).") from error
    return cell


class FolderLocked(TrainingError):
    """Another process holds the training lock of a run folder; the message names it."""


@contextmanager
def training_lock(folder: Path) -> Iterator[None]:
    """Hold the exclusive right to train in this folder.  Raise FolderLocked if another process holds it for too long.

    A process that was stopped may still be saving, so the lock is waited for.  The file names its holder.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(acquire_training_lock(folder, timeout=0))
        except LockHeld:
            stack.enter_context(wait_for_training_lock(folder, TRAINING_LOCK_TIMEOUT))
        (folder / LOCK_WAIT_FILE).unlink(missing_ok=True)  # also one that a killed process left
        yield


def acquire_training_lock(folder: Path, timeout: float) -> AbstractContextManager[None]:
    return file_lock(folder / TRAINING_LOCK_FILE, timeout=timeout, holder=describe_process())


@contextmanager
def wait_for_training_lock(folder: Path, timeout: float) -> Iterator[None]:
    """Hold a lock after waiting for it; meanwhile a file in the folder shows it.  Raise FolderLocked."""
    wait_file = folder / LOCK_WAIT_FILE
    wait_file.touch()
    logger.warning(lock_wait_message(folder))
    with ExitStack() as stack:
        try:
            stack.enter_context(acquire_training_lock(folder, timeout))
        except LockHeld as error:
            raise FolderLocked(
                f"{folder}: {error.holder} has held the training lock for more than {timeout:g} s and may be frozen. "
                "End that process and run the same command again: the cell resumes from its checkpoint."
            ) from error
        finally:
            wait_file.unlink(missing_ok=True)
        yield


def read_last_lock_holder(folder: Path) -> str:
    """Return the process that took the training lock last: "process 4711 on HOST, since ..."."""
    return read_holder(folder / TRAINING_LOCK_FILE)


def lock_wait_message(folder: Path) -> str:
    """Return a message about the holder of the training lock if a process waits for it, else ""."""
    if not (folder / LOCK_WAIT_FILE).exists():
        return ""
    return f"The cell waits for the training lock of its folder, which is held by {read_last_lock_holder(folder)}."


def ensure_same_cell(folder: Path, stored: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Raise TrainingError if two stored cells differ in a setting that can change the result."""
    stored_settings, current_settings = (
        dict(flatten_paths(settings_of_folder(stored))),
        dict(flatten_paths(settings_of_folder(current))),
    )
    paths = [
        path
        for path in sorted({*stored_settings, *current_settings})
        if stored_settings.get(path) != current_settings.get(path)
    ]
    if paths:
        differences = "; ".join(
            f"{path} is {stored_settings.get(path)!r} instead of {current_settings.get(path)!r}" for path in paths[:3]
        )
        raise TrainingError(
            f"{folder}: the folder contains the run of another cell ({differences}). Use another folder."
        )


def settings_of_folder(cell_dict: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a stored cell that two runs in one folder must share; devices and names may differ."""
    return {
        "task": cell_dict["task"],
        "model": cell_dict["model"],
        "train": {name: value for name, value in cell_dict["train"].items() if name not in SETTINGS_NOT_IN_KEY},
        "agent": cell_dict.get("agent"),
        "ops": cell_dict.get("ops", {}),
        "trainer": {"precision": cell_dict["trainer"]["precision"]},
        "measure": {name: cell_dict["measure"][name] for name in ("select", "direction")},
        "seed": cell_dict["seed"],
    }


def flatten_paths(nested: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every leaf of nested mappings as (dotted path, value)."""
    if not isinstance(nested, Mapping):
        yield path, nested
        return
    for name, value in nested.items():
        yield from flatten_paths(value, f"{path}.{name}".lstrip("."))
