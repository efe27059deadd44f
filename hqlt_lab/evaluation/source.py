"""Files in the place of what lm-eval and the hub have: where they are, and which content they had."""

import hashlib
from pathlib import Path

from hqlt_lab.errors import StoreError, listed
from hqlt_lab.experiment.task_files import is_path


def local_file(name: str, folder: Path) -> Path:
    """The file that stands for a task's dataset."""
    file = folder / f"{name}.jsonl"
    if not file.is_file():
        there = listed(sorted(one.name for one in folder.glob("*.jsonl")))
        raise StoreError(f"{name}: there is no {file}, which would hold its documents. There: {there}.")
    return file


def source_of(name: str, local: Path | None) -> str:
    """A digest of the files that are not lm-eval's: the documents, or the definition with the code beside it."""
    if is_path(name):
        return files_digest([Path(name), *sorted(Path(name).parent.glob("*.py"))])
    return "" if local is None else files_digest([local_file(name, local)])


def files_digest(files: list[Path]) -> str:
    found = hashlib.sha256()
    for file in files:
        found.update(file.read_bytes())
    return found.hexdigest()[:16]
