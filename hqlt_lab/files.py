"""Atomic file writes, reading of JSON files, and error messages for a full disk.

A file is written under a temporary name and then renamed, so readers see the old or the new content, never a part of
it. A crash can leave a temporary file behind, which is never read. After a write error the temporary file is removed.
"""

import errno
import json
import math
import os
import reprlib
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from hqlt_lab.errors import StoreError

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
REFUSED_ERRNOS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ESTALE, errno.EIO)
NUMBER = (int, float)
DAMAGE_REMEDY = "Remove the file; its content is computed again."
JsonKind = TypeVar("JsonKind")


class DiskFull(StoreError):
    """The disk is full; the message names it."""


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a file atomically: to a temporary file, synced to disk and then renamed."""
    temp = temp_path(path)
    write_temp(temp, content.encode() if isinstance(content, str) else content)
    commit_temp(temp, path)


def temp_path(path: Path) -> Path:
    """Return a unique temporary path beside `path`. It has a random suffix because containers can share process ids."""
    return path.with_name(f"{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.writing")


def write_temp(temp: Path, content: bytes | memoryview) -> None:
    """Write a temporary file, and remove it if writing fails."""
    try:
        temp.write_bytes(content)
    except OSError:
        temp.unlink(missing_ok=True)
        raise


def read_json(
    path: Path | str,
    kind: type[JsonKind],
    *,
    allow_nan: bool = False,
    remedy: str = DAMAGE_REMEDY,
) -> JsonKind:
    """Read a JSON file with a top-level value of this kind: dict, list or str.

    Raise StoreError, which ends with the remedy, if the file is damaged; raise OSError if it cannot be opened.
    """
    with open(path, "rb") as file:
        content = file.read()
    try:
        return decode_json(content, kind, allow_nan=allow_nan)
    except ValueError as error:
        raise StoreError(f"{path}: the file is damaged ({error}). {remedy}") from error


def read_text_values(path: Path | str) -> dict[str, str]:
    """Read a JSON file with one mapping of names to texts.  Raise StoreError if it is damaged."""
    values = read_json(path, dict)
    with translate_damage(path):
        check_types(values, dict.fromkeys(values, (str,)))
    return values


@contextmanager
def translate_damage(path: Path | str, remedy: str = DAMAGE_REMEDY) -> Iterator[None]:
    """Turn an error of values that the lab did not write, such as a text as metric, into StoreError."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise StoreError(f"{path}: the file is damaged ({type(error).__name__}: {error}). {remedy}") from error


def decode_json(content: str | bytes, kind: type[JsonKind], *, allow_nan: bool = False) -> JsonKind:
    """Parse JSON from UTF-8.  Raise ValueError for every kind of damage, including nesting that is too deep.

    `kind` is the type of the top-level value; `object` accepts all.
    """
    try:
        text = content if isinstance(content, str) else content.decode()
        value = (LENIENT_DECODER if allow_nan else STRICT_DECODER).decode(text)
    except RecursionError as error:
        raise ValueError("its values are nested too deeply") from error
    if not isinstance(value, kind):
        raise ValueError(f"its content is a {type(value).__name__}, not a {kind.__name__}")
    return value


def check_types(fields: Mapping[str, Any], kinds: Mapping[str, tuple[type, ...]]) -> None:
    """Raise ValueError if a field that exists is not of one of its kinds.  True and False are not numbers."""
    for name, kind in kinds.items():
        if name in fields and not is_kind(fields[name], kind):
            raise ValueError(f"{name} is {reprlib.repr(fields[name])}")


def check_numbers(values: Mapping[str, Any]) -> None:
    """Raise ValueError if a value is not a number, such as a metric that is a text."""
    for name, value in values.items():
        if not is_kind(value, NUMBER):
            raise ValueError(f"{name} is {reprlib.repr(value)}, not a number")


def is_kind(value: Any, kind: tuple[type, ...]) -> bool:
    if isinstance(value, int):
        # an integer that does not fit into 64 bits was not written by the lab, and float() of it may fail
        return bool in kind if isinstance(value, bool) else int in kind and -(2**63) <= value < 2**63
    return isinstance(value, kind)


def refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def parse_finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):  # such as 1e999
        raise ValueError(f"{text} is too large")
    return value


# Made once: json.loads makes a decoder at each call that has options
STRICT_DECODER = json.JSONDecoder(parse_constant=refuse_constant, parse_float=parse_finite_float)
LENIENT_DECODER = json.JSONDecoder()


def commit_temp(temp: Path, path: Path) -> None:
    """Sync a complete temporary file to disk, then rename it to `path`."""
    fsync_path(temp)
    os.replace(temp, path)
    fsync_path(path.parent)


def fsync_path(path: Path) -> None:
    """Flush a file, or the directory entries of a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_disk_full(error: BaseException) -> bool:
    """Return whether the error means that a disk or a quota is full."""
    return isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS


@contextmanager
def translate_disk_full(folder: Path) -> Iterator[None]:
    """Turn a disk-full OSError into DiskFull, naming the disk of the file in the error, or else of `folder`."""
    try:
        yield
    except OSError as error:
        if not is_disk_full(error):
            raise
        raise DiskFull(
            disk_full_message(Path(error.filename) if isinstance(error.filename, str) else folder)
        ) from error


@contextmanager
def translate_write_errors(folder: Path) -> Iterator[None]:
    """Turn an OSError about a file in `folder` into StoreError, and one about a full disk into DiskFull."""
    with translate_disk_full(folder):
        try:
            yield
        except OSError as error:
            if not is_write_error(error, folder):
                raise
            raise StoreError(write_error_message(error, folder)) from error


def is_write_error(error: BaseException, folder: Path) -> bool:
    """Return whether the system refused to write in `folder`: its permissions, a read-only disk, or it is gone."""
    if not isinstance(error, OSError) or not isinstance(error.filename, str | os.PathLike):
        return False
    if not Path(error.filename).is_relative_to(folder):
        return False
    return error.errno in REFUSED_ERRNOS or not folder.is_dir()


def write_error_message(error: OSError, folder: Path) -> str:
    """Return the error message for a folder in which nothing can be written."""
    reason = error.strerror if folder.is_dir() else "the folder does not exist"
    return (
        f"{error.filename or folder}: it cannot be written ({reason}). Saved results are intact: restore the folder or "
        "its permissions, and run the same command again."
    )


def disk_full_message(path: Path) -> str:
    """Return the error message for a full disk, with its mount point and free space."""
    resolved = path.resolve()  # a symbolic link can lead to another disk
    disk = next(folder for folder in (resolved, *resolved.parents) if os.path.ismount(folder))
    usage = shutil.disk_usage(disk)
    return (
        f"{path}: the disk {disk} is full ({usage.free / 2**20:,.0f} of {usage.total / 2**20:,.0f} MB are free). "
        "Saved results are intact: free some space, and run the same command again."
    )
