"""Local text: a file, all files of a folder, or the sources of the running Python's standard library."""

import os
import platform
import sysconfig
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from hqlt_lab.data.sources._base import Document
from hqlt_lab.data.sources.readers import promises

# not part of every installation of Python
ELSEWHERE = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}


class Files:
    """Files in an order, and what they are."""

    def __init__(self, files: list[Path], field: str, told: dict[str, Any]) -> None:
        self.files, self.field = files, field
        # size and number, as a file that changed would make other documents of the same numbers
        self.description = {**told, "files": len(files), "bytes": sum(file.stat().st_size for file in files)}

    def documents(self, first: int = 0) -> Iterator[Document]:
        promised = chain.from_iterable(promises(file, self.field) for file in self.files)
        return (promise() for promise in islice(promised, first, None))


def local(path: Path, field: str) -> Files:
    """A file, or all files of a folder in the order of their names; hidden ones are left out."""
    found = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    files = [file for file in found if not any(part.startswith(".") for part in file.relative_to(path).parts)]
    return Files(files, field, {"kind": "files", "path": str(path.resolve()), "field": field})


def python() -> Files:
    """What every Python brings along, about 12 MB of it; other versions have other text."""
    library = Path(sysconfig.get_paths()["stdlib"])
    files = []
    for folder, inside, names in os.walk(library):
        inside[:] = set(inside) - ELSEWHERE  # what is taken out here is not looked into: site-packages may be large
        files += [Path(folder, name) for name in names if name.endswith(".py")]
    return Files(sorted(files), "", {"kind": "python", "version": platform.python_version()})
