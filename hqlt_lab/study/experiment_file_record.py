"""Which experiment file a study belongs to, so that two files of one name do not share a study.

    runs/studies/NAME/experiment_file.json     {"file": PATH}, relative to the folder of the study

A study is called like its file. A file of the same name in another folder is refused, unless it has the same content. A
file that was moved keeps its study: the recorded path then does not exist, and the next run records the new one.
"""

import json
import os
from pathlib import Path

from hqlt_lab.errors import StoreError
from hqlt_lab.files import read_json, translate_damage, write_atomic
from hqlt_lab.study.ledger.study_store import StudyStore

FILE_NOTE = "experiment_file.json"


def open_study(runs: str | Path, file: Path) -> StudyStore:
    """Return the store of the study of an experiment file; raise StoreError if it belongs to another file."""
    store = StudyStore(runs, file.stem)
    owner = read_study_file(store.folder)
    is_copy_of_study = file.resolve().parent == store.folder.resolve()
    if owner is None or is_copy_of_study or not owner.is_file() or not file.is_file():
        return store
    if not owner.samefile(file) and owner.read_bytes() != file.read_bytes():
        raise StoreError(
            f"{file}: the study {file.stem!r} in {runs} belongs to {os.path.relpath(owner)}, another file with the "
            "same name. Rename one of the files, or use another folder of runs: --runs FOLDER."
        )
    return store


def record_study_file(folder: Path, file: Path) -> None:
    """Write down that the study in this folder belongs to this file, unless the file is the study's own copy."""
    if file.resolve().parent != folder.resolve():
        path = os.path.relpath(file.resolve(), folder.resolve())
        write_atomic(folder / FILE_NOTE, json.dumps({"file": path}) + "\n")


def read_study_file(folder: Path) -> Path | None:
    """Return the experiment file that a study belongs to; None if it was not recorded."""
    note = folder / FILE_NOTE
    path = read_json(note, dict).get("file") if note.is_file() else None
    with translate_damage(note):  # such as a path with a zero byte
        return (folder.resolve() / path).resolve() if isinstance(path, str) else None
