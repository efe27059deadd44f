"""Local text: a file, all files in a folder, or the source files of the running Python's standard library."""

import os
import platform
import sysconfig
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from hqlt_lab.data.sources._base import Document
from hqlt_lab.data.sources.file_readers import lazy_documents

# not present in every Python installation
EXCLUDED_FOLDERS = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}


class FileSource:
    """Documents from a list of files."""

    def __init__(self, files: list[Path], field: str, description: dict[str, Any]) -> None:
        self.files, self.field = files, field
        # the number and total size of the files detect most changes, which would shift the document numbers
        self.description = {**description, "files": len(files), "bytes": sum(file.stat().st_size for file in files)}

    def iterate_documents(self, first: int = 0) -> Iterator[Document]:
        documents = chain.from_iterable(lazy_documents(file, self.field) for file in self.files)
        return (read_document() for read_document in islice(documents, first, None))


def open_local_files(path: Path, field: str) -> FileSource:
    """Open a file, or all files in a folder sorted by name, without hidden ones."""
    candidates = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    files = [file for file in candidates if not any(name.startswith(".") for name in file.relative_to(path).parts)]
    return FileSource(files, field, {"kind": "files", "path": str(path.resolve()), "field": field})


def open_standard_library() -> FileSource:
    """Open the Python source files of the standard library, about 12 MB.  The text depends on the Python version."""
    library = Path(sysconfig.get_paths()["stdlib"])
    files = []
    for folder, subfolders, names in os.walk(library):
        # os.walk does not descend into folders that are removed here: site-packages may be large
        subfolders[:] = set(subfolders) - EXCLUDED_FOLDERS
        files += [Path(folder, name) for name in names if name.endswith(".py")]
    return FileSource(sorted(files), "", {"kind": "python", "version": platform.python_version()})
