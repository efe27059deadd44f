"""Writing that nothing can tear: a file is the old one or the new one, never half of it.

A crash leaves a name that nobody reads; a full disk not even that, and says which disk it is.
"""

import errno
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hqlt_lab.errors import StoreError

FULL = (errno.ENOSPC, errno.EDQUOT)


class NoRoom(StoreError):
    """A disk is full."""


def write(path: Path, content: str | bytes) -> None:
    """Replace the file's content at once."""
    written = beside(path)
    begin(written, content.encode() if isinstance(content, str) else content)
    put(written, path)


def beside(path: Path) -> Path:
    """A name that nobody reads, and nobody else writes: in containers all processes may have the same number."""
    return path.with_name(f"{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.writing")


def begin(written: Path, content: bytes | memoryview) -> None:
    """Write a file under a name that nobody reads; where there is no room for it, nothing of it stays."""
    try:
        written.write_bytes(content)
    except OSError:
        written.unlink(missing_ok=True)
        raise


def read_json(path: Path) -> Any:
    """What a file of ours says, or a sentence on what is wrong with it."""
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise StoreError(f"{path}: it is damaged ({error}). Remove it, and what it told is found out again.") from error


def put(written: Path, path: Path) -> None:
    """Give a complete file its name, after the disk has it."""
    flush(written)
    os.replace(written, path)
    flush(path.parent)


def flush(path: Path) -> None:
    """Wait until the disk has the file, or the names in the folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def changing(file: Path) -> Iterator[None]:
    """Read a file, add to it, write it: one process at a time, or what another has added meanwhile would be lost."""
    with file.with_name(f"{file.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # freed by whatever ends us
        yield


def is_full(error: BaseException) -> bool:
    """Whether it says that a disk has no room left."""
    return isinstance(error, OSError) and error.errno in FULL


@contextmanager
def with_room(folder: Path) -> Iterator[None]:
    """Where a disk turns out to be full, which one it is; that of the folder, unless the system names another file."""
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        raise NoRoom(full(Path(error.filename) if isinstance(error.filename, str) else folder)) from error


def full(place: Path) -> str:
    """The sentence for a disk without room."""
    there = place.resolve()  # a link leads to another disk
    disk = next(folder for folder in (there, *there.parents) if os.path.ismount(folder))
    room = shutil.disk_usage(disk)
    return (
        f"{place}: the disk {disk} is full ({room.free / 2**20:,.0f} of {room.total / 2**20:,.0f} MB are free). "
        "Nothing that was saved is lost: make room, and run the same command again."
    )
