"""One at a time: who prepares data in a folder holds a lock on it, which a kill frees."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hqlt_lab.errors import StoreError


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Be the only one who prepares here."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / "prepare.lock", os.O_CREAT | os.O_RDWR, 0o644)
    except OSError as error:
        raise StoreError(
            f"{folder}: nothing can be written here ({error.strerror}). Name another folder: --into FOLDER"
        ) from error
    try:
        take(handle, folder)
        yield
    finally:
        os.close(handle)


def take(handle: int, folder: Path) -> None:
    """Get the lock, or say that another has it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StoreError(f"{folder}: another `hqlt data prepare` is at work here. Wait for it to end.") from error


def clear(folder: Path) -> None:
    """Remove what another left half written, from a folder that is known to be ours."""
    for leftover in folder.rglob("*.writing"):
        leftover.unlink(missing_ok=True)
