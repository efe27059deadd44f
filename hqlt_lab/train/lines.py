"""Files of JSON lines, written as things happen: a line is whole or does not count.

A reader may begin anywhere and leaves a line alone that is not finished; whoever writes on cuts off what a crash tore.
"""

import errno
import json
import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any


def read_lines(file: Path, start: int = 0, most: int = -1) -> tuple[list[dict[str, Any]], int]:
    """What the lines behind byte `start` say, of at most `most` bytes, and where to go on."""
    if not file.exists():
        return [], 0
    with file.open("rb") as lines:
        lines.seek(start)
        text = lines.read(most)
    whole = text[: text.rfind(b"\n") + 1]
    return list(said(whole)), start + len(whole)


def said(text: bytes) -> Iterator[dict[str, Any]]:
    """The lines that can be read; a disk that lost power may have left one of zeros."""
    for line in text.splitlines():
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if isinstance(told, dict):
            yield told


def write_on(file: Path, end: int) -> FileIO:
    """The file, opened to append behind byte `end`; what stands there is cut off."""
    opened = file.open("ab", buffering=0)  # a line is one write, so no reader sees it in pieces
    opened.truncate(end)
    return opened


def add_line(opened: FileIO, told: dict[str, Any]) -> None:
    """Append a line; of one that the disk took only a part of, the next attempt cuts off what is there."""
    line = json.dumps(told).encode() + b"\n"
    if opened.write(line) != len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(opened.name))
