"""Which code a cell was trained by, as its folder tells: a cell that goes on after a change is of both.

    code.json       {"lab": "0c1f...", "mixer mine": "77aa...+b012..."}         older+newer

The ledger has it too; the folder keeps it because a ledger may be lost, and what is done is then taken from folders.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from hqlt_lab.files import read_json, write
from hqlt_lab.train import outcome

FILE = "code.json"
Code = dict[str, str]


def made_by(folder: Path, now: Mapping[str, str]) -> Code:
    """The sources of the result that an attempt with those of now will end with."""
    before = noted(folder)
    if (folder / outcome.FILE).exists():  # nothing is trained any more
        return before or dict(now)
    goes_on = any(folder.glob("*.ckpt"))
    return {name: both(before.get(name, source), source) if goes_on else source for name, source in now.items()}


def noted(folder: Path) -> Code:
    """What is written in the folder; nothing, if no study trained it."""
    told: Code = read_json(folder / FILE) if (folder / FILE).exists() else {}
    return told


def both(before: str, now: str) -> str:
    """One source after the other."""
    return before if now in before.split("+") else f"{before}+{now}"


def note(folder: Path, code: Mapping[str, str]) -> None:
    """Write it down before anything is trained."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / FILE, json.dumps(code, indent=1) + "\n")
