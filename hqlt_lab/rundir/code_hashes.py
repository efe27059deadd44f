"""code.json: hashes of the code that a cell was trained with.  A cell resumed after a code change has both hashes.

    code.json       {"lab": "0c1f...", "mixer mine": "77aa...+b012..."}         older+newer

The ledger stores these hashes too.  The folder has a copy because finished cells are restored from their folders if
the ledger is lost.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from hqlt_lab.files import read_text_values, write_atomic
from hqlt_lab.rundir.outcome import OUTCOME_FILE

CODE_FILE = "code.json"
CodeHashes = dict[str, str]


def combine_code_hashes(folder: Path, current: Mapping[str, str]) -> CodeHashes:
    """Return the code hashes of the result that an attempt with the current code will produce in this folder."""
    stored = read_code_hashes(folder)
    if (folder / OUTCOME_FILE).exists():  # the cell is finished, so the current code will not train it
        return stored or dict(current)
    resumes = any(folder.glob("*.ckpt"))
    return {
        name: merge_hashes(stored.get(name, code_hash), code_hash) if resumes else code_hash
        for name, code_hash in current.items()
    }


def read_code_hashes(folder: Path) -> CodeHashes:
    """Return the stored code hashes; empty if the cell was not trained by a study."""
    return read_text_values(folder / CODE_FILE) if (folder / CODE_FILE).exists() else {}


def merge_hashes(before: str, current: str) -> str:
    """Append the current hash to the stored ones, which are joined by "+", unless it is among them."""
    return before if current in before.split("+") else f"{before}+{current}"


def write_code_hashes(folder: Path, code: Mapping[str, str]) -> None:
    """Write code.json, creating the folder; call this before training starts."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / CODE_FILE, json.dumps(code, indent=1) + "\n")
