"""A folder belongs to one cell, and says to which."""

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hqlt_lab.errors import TrainingError
from hqlt_lab.experiment.cell import NOT_IN_THE_KEY, Cell
from hqlt_lab.files import read_json, write

FILE = "cell.json"
LOCK = "training.lock"


def claim(folder: Path, cell: Cell) -> None:
    """Write the cell into its folder; a folder of another cell is refused."""
    folder.mkdir(parents=True, exist_ok=True)
    file, told = folder / FILE, json.dumps(cell.as_dict(), indent=1)
    before, now = read_json(file) if file.exists() else None, json.loads(told)
    same_cell(folder, before or now, now)
    if before != now:
        write(file, told)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Be the only one who trains here: a process that was told to end may still be saving."""
    with (folder / LOCK).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def same_cell(folder: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Complain unless both would learn the same."""
    before, now = dict(flat(what_counts(there))), dict(flat(what_counts(here)))
    paths = [path for path in sorted({*before, *now}) if before.get(path) != now.get(path)]
    if paths:
        told = "; ".join(f"{path} is {before.get(path)!r} there, {now.get(path)!r} here" for path in paths[:3])
        raise TrainingError(f"{folder}: this folder holds the run of another cell ({told}). Use another folder.")


def what_counts(told: Mapping[str, Any]) -> dict[str, Any]:
    """A stored cell without what cannot change its result: a run may go on with other devices or a new name."""
    return {
        "task": told["task"],
        "model": told["model"],
        "train": {name: value for name, value in told["train"].items() if name not in NOT_IN_THE_KEY},
        "agent": told.get("agent"),
        "ops": told.get("ops", {}),
        "trainer": {"precision": told["trainer"]["precision"]},
        "measure": {name: told["measure"][name] for name in ("select", "direction")},
        "seed": told["seed"],
    }


def flat(nested: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with its path."""
    if not isinstance(nested, Mapping):
        yield path, nested
        return
    for name, value in nested.items():
        yield from flat(value, f"{path}.{name}".lstrip("."))
