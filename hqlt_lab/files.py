"""Writing that a crash cannot tear: a file is the old one or the new one, never half of it."""

import json
import os
from pathlib import Path
from typing import Any

from hqlt_lab.errors import StoreError


def write(path: Path, content: str | bytes) -> None:
    """Replace the file's content at once."""
    written = path.with_name(f"{path.name}.{os.getpid()}.writing")
    written.write_bytes(content.encode() if isinstance(content, str) else content)
    put(written, path)


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
