"""Local files that replace datasets or task definitions of lm-eval, and hashes of their contents."""

from pathlib import Path

from hqlt_lab.errors import StoreError, format_names
from hqlt_lab.experiment.lm_eval_section import is_task_file
from hqlt_lab.hashing import hash_chunks, hash_file


def local_dataset_file(name: str, folder: Path) -> Path:
    """Return the local file that replaces a task's dataset.  Raise `StoreError` if it does not exist."""
    file = folder / f"{name}.jsonl"
    if not file.is_file():
        available = format_names(sorted(path.name for path in folder.glob("*.jsonl")))
        raise StoreError(
            f"{name}: the file {file} with its documents does not exist. Files in the folder: {available}."
        )
    return file


def source_digest(name: str, local_folder: Path | None) -> str:
    """Hash the local files that a task uses: its documents, or its definition and the Python files beside it."""
    if is_task_file(name):
        return hash_chunks(file.read_bytes() for file in [Path(name), *sorted(Path(name).parent.glob("*.py"))])
    return "" if local_folder is None else hash_file(local_dataset_file(name, local_folder), 16)
