"""Exclusive use of a data folder: a file lock against concurrent processes, and a record of the request.

The kernel releases the lock when the process dies.  The request is saved before anything else is written, and a
different request for the same folder is rejected.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from hqlt_lab.data.corpus_index import read_index
from hqlt_lab.errors import StoreError, format_names
from hqlt_lab.file_lock import LockHeld, file_lock
from hqlt_lab.files import read_json, write_atomic


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the exclusive lock of a data folder, creating the folder if needed."""
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(file_lock(folder / "prepare.lock", timeout=0))
        except LockHeld as error:
            raise StoreError(
                f"{folder}: another `hqlt data prepare` is writing to this folder. Wait until it ends."
            ) from error
        except OSError as error:
            raise StoreError(
                f"{folder}: the folder is not writable ({error.strerror}). Use another folder: --into FOLDER"
            ) from error
        yield


def remove_partial_files(folder: Path) -> None:
    """Remove temporary files of an interrupted preparation.  Call only after `claim_folder` accepted the folder."""
    for leftover in folder.rglob("*.writing"):
        leftover.unlink(missing_ok=True)


def claim_folder(folder: Path, source: dict[str, Any], options: dict[str, Any]) -> None:
    """Record the request in the folder.  Raise `StoreError` if the folder holds other data or foreign files."""
    request_file, current = folder / "work" / "request.json", {"source": source, "options": options}
    previous = read_previous_request(folder, request_file)
    if previous == current:
        return
    if source.get("kind") == "files" and folder.resolve().is_relative_to(source["path"]):
        raise StoreError(f"{folder}: the folder is inside the source, {source['path']}. Choose another folder.")
    if previous is None and (foreign := find_foreign_files(folder)):
        raise StoreError(
            f"{folder}: the folder contains other files ({format_names(foreign)}). Choose a new or empty folder."
        )
    if previous and ((folder / "index.json").exists() or any((folder / "work").glob("*.chunk"))):
        raise StoreError(
            f"{folder}: the folder contains other data. {describe_differences(previous, current)} Choose another "
            "folder."
        )
    for leftover in (folder / "work", folder / "tokenizer"):
        shutil.rmtree(leftover, ignore_errors=True)
    request_file.parent.mkdir(parents=True)
    write_atomic(request_file, json.dumps(current))


def find_foreign_files(folder: Path) -> list[str]:
    """Return up to five names in a folder without a saved request that `hqlt data prepare` did not create.

    A preparation killed at its start leaves the lock file and possibly a half-written request.
    """
    work = folder / "work"
    was_saving_request = work.is_dir() and all(file.match("request.json.*.writing") for file in work.iterdir())
    own_names = {"prepare.lock"} | ({"work"} if was_saving_request else set())
    return sorted(entry.name for entry in folder.iterdir() if entry.name not in own_names)[:5]


def read_previous_request(folder: Path, request_file: Path) -> dict[str, Any] | None:
    if (folder / "index.json").exists():
        index = read_index(folder)
        return {"source": index.source, "options": index.options}
    return read_json(request_file, dict) if request_file.exists() else None


def describe_differences(previous: dict[str, Any], current: dict[str, Any]) -> str:
    """Return a sentence for each setting that differs between two requests."""
    previous_settings, current_settings = (
        {**request["source"], **request["options"]} for request in (previous, current)
    )
    return " ".join(
        f"{name} was {previous_settings.get(name)}, and is now {current_settings.get(name)}."
        for name in dict.fromkeys([*previous_settings, *current_settings])
        if previous_settings.get(name) != current_settings.get(name)
    )
