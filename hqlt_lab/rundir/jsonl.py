"""Files of JSON lines that are appended to during a run; only complete lines count.

A reader may start at any line and ignores an unfinished last line.  A writer truncates what a crash left unfinished.
"""

import errno
import json
import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

from hqlt_lab.files import decode_json


def read_jsonl(file: Path, offset: int = 0, max_bytes: int = -1) -> tuple[list[dict[str, Any]], int]:
    """Return the rows after byte `offset`, reading at most `max_bytes`, and the offset at which to continue."""
    if not file.exists():
        return [], 0
    with file.open("rb") as opened:
        opened.seek(offset)
        text = opened.read(max_bytes)
    complete = text[: text.rfind(b"\n") + 1]
    return list(parse_lines(complete)), offset + len(complete)


def parse_lines(text: bytes) -> Iterator[dict[str, Any]]:
    """Yield the rows of the readable lines; after a power failure, a line may consist of zeros."""
    for line in text.splitlines():
        try:
            yield decode_json(line, dict, allow_nan=True)
        except ValueError:
            continue


def open_for_append(file: Path, offset: int) -> FileIO:
    """Open the file to append after byte `offset`, truncating everything behind it."""
    opened = file.open("ab", buffering=0)  # each line is one write call, so that readers see complete lines
    opened.truncate(offset)
    return opened


def append_line(file: FileIO, row: dict[str, Any]) -> None:
    """Append a row.  Raise OSError if the disk is full; the next attempt truncates the partly written line."""
    line = json.dumps(row).encode() + b"\n"
    if file.write(line) != len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file.name))
