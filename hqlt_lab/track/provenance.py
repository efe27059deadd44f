"""Which code, libraries and machine made a result.

Once per study: the commit with its uncommitted changes, versions, machine, command.  Per cell: a hash of the lab's own
sources and one of each part it uses, so that results of other code can be told apart.
"""

import hashlib
import inspect
import json
import shlex
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.fill import bare_model, fill_model
from hqlt_lab.files import read_json
from hqlt_lab.registry import KINDS, available, find
from hqlt_lab.secrets import scrubbed
from hqlt_lab.track.machine import machine, repository, versions
from hqlt_lab.track.sent import read_sent
from hqlt_lab.track.words import clean

ROOMS = {"registry": "*.py", "ops": "*.py", "model": "*.py", "train": "*.py", "tasks": "_*.py", "components": "_*.py"}


def provenance(folder: Path | None = None) -> dict[str, Any]:
    """What a study's results stand on, from the repository that holds the folder."""
    return {
        "git": repository(folder or Path.cwd()),
        "versions": versions(),
        "machine": machine(),
        "command": scrubbed(shlex.join(sys.argv)),
    }


def code_of(cell: Cell) -> dict[str, str]:
    """Short hashes of sources: "lab", the task, and each part that the cell's layers read, as "kind name"."""
    return {"lab": lab(), **hashed("task", cell.task["name"]), **parts_of(json.dumps(cell.model, sort_keys=True))}


@cache
def parts_of(model: str) -> dict[str, str]:
    """The parts that a model, told in JSON, reads; a study asks this for every seed."""
    found: dict[str, str] = {}
    layers = bare_model(fill_model(json.loads(model)))["parts"]
    for parts in layers if isinstance(layers, list) else [layers]:
        names = {kind: part["name"] for kind, part in parts.items()}
        if "update_rule" in names:
            names.setdefault("feature_map", find("update_rule", names["update_rule"]).feature_map)  # type: ignore[attr-defined]
        for kind, name in names.items():
            found |= hashed(kind, name)
    return found


def hashed(kind: str, name: str) -> dict[str, str]:
    """A part, as "kind name", and its file."""
    return {f"{kind} {name}": of_source(find(kind, name))}


@cache
def of_source(maker: Callable[..., Any]) -> str:
    """Of a part's file as it is when the process first asks; one that was typed at a prompt has none."""
    try:
        file = inspect.getsourcefile(maker)
    except TypeError:
        file = None
    return short_hash([Path(file)]) if file and Path(file).is_file() else "unknown"


def sources_today(names: Iterable[str]) -> dict[str, str]:
    """What `code_of` would say of these sources now, without loading them where their shelf has the file."""
    return {name: found for name in names if (found := source_today(name)) is not None}


def source_today(name: str) -> str | None:
    """The hash of "lab" or of "kind name"; None if there is no such part any more."""
    if name == "lab":
        return lab()
    kind, _, part = name.partition(" ")
    if kind not in KINDS:
        return None
    if (own := on_shelf(kind, part)) is not None:
        return own
    return of_source(find(kind, part)) if part in available(kind) else None


@cache
def on_shelf(kind: str, part: str) -> str | None:
    """The same of a part of the lab's own, without importing it."""
    shelf = KINDS[kind].shelf
    file = place(shelf.removeprefix("hqlt_lab.")) / f"{part}.py" if shelf else None
    return short_hash([file]) if file is not None and file.is_file() else None


def commits(study: Path, artifacts: Path) -> list[str]:
    """The commits that a study was run with: the last, and those before as far as MLflow's files of it are here."""
    sent = read_sent(study)
    files = artifacts.glob(f"{clean(study.name)}/{sent.run}/artifacts/provenance/*.json") if sent else ()
    found = [read_json(file).get("git") or {} for file in (*files, study / "provenance.json") if file.is_file()]
    return sorted({one["commit"] for one in found if "commit" in one})


@cache
def lab() -> str:
    """Of everything that takes part in every run."""
    return short_hash(file for room, pattern in ROOMS.items() for file in sorted(place(room).rglob(pattern)))


def place(room: str) -> Path:
    """The folder of a room, without importing it."""
    spec = find_spec(f"hqlt_lab.{room}")
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def short_hash(files: Iterable[Path]) -> str:
    """Twelve digits that change with any of the files."""
    made = hashlib.sha256()
    for file in files:
        made.update(f"{file.name}\n".encode() + hashlib.sha256(file.read_bytes()).digest())
    return made.hexdigest()[:12]
