"""Whose folder it is: the request that began it is noted before anything is made, and another one is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

from hqlt_lab.data.index import read_index
from hqlt_lab.errors import StoreError
from hqlt_lab.files import write


def begin(folder: Path, source: dict[str, Any], options: dict[str, Any]) -> None:
    """Claim a folder for a request; one that holds the work of another is refused."""
    note, asked = folder / "work" / "request.json", {"source": source, "options": options}
    before = asked_before(folder, note)
    if before == asked:
        return
    if before and ((folder / "index.json").exists() or any((folder / "work").glob("*.piece"))):
        raise StoreError(f"{folder}: it holds other data. {differences(before, asked)} Choose another folder.")
    for leftover in (folder / "work", folder / "tokenizer"):
        shutil.rmtree(leftover, ignore_errors=True)
    note.parent.mkdir(parents=True)
    write(note, json.dumps(asked))


def asked_before(folder: Path, note: Path) -> dict[str, Any] | None:
    if (folder / "index.json").exists():
        index = read_index(folder)
        return {"source": index.source, "options": index.options}
    return json.loads(note.read_text()) if note.exists() else None


def differences(before: dict[str, Any], now: dict[str, Any]) -> str:
    """A sentence for each setting that is not what it was."""
    was, is_now = ({**one["source"], **one["options"]} for one in (before, now))
    return " ".join(
        f"{name} was {was.get(name)}, and now is {is_now.get(name)}."
        for name in dict.fromkeys([*was, *is_now])
        if was.get(name) != is_now.get(name)
    )
