"""Whose folder it is: the request that began it is noted before anything is made, and another one is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

from hqlt_lab.data.index import read_index
from hqlt_lab.errors import StoreError, listed
from hqlt_lab.files import write


def begin(folder: Path, source: dict[str, Any], options: dict[str, Any]) -> None:
    """Claim a folder for a request; one that holds the work of another is refused."""
    note, asked = folder / "work" / "request.json", {"source": source, "options": options}
    before = asked_before(folder, note)
    if before == asked:
        return
    if source.get("kind") == "files" and folder.resolve().is_relative_to(source["path"]):
        raise StoreError(f"{folder}: it lies inside its own source, {source['path']}. Choose another folder.")
    if before is None and (strange := strangers(folder)):
        raise StoreError(
            f"{folder}: there is something that is no prepared data ({listed(strange)}). "
            "Choose a folder that is new or empty."
        )
    if before and ((folder / "index.json").exists() or any((folder / "work").glob("*.piece"))):
        raise StoreError(f"{folder}: it holds other data. {differences(before, asked)} Choose another folder.")
    for leftover in (folder / "work", folder / "tokenizer"):
        shutil.rmtree(leftover, ignore_errors=True)
    note.parent.mkdir(parents=True)
    write(note, json.dumps(asked))


def strangers(folder: Path) -> list[str]:
    """What stands in a folder that was not begun by us; a request begins with a lock and a note, maybe half a one."""
    work = folder / "work"
    noting = work.is_dir() and all(one.match("request.json.*.writing") for one in work.iterdir())
    begun = {"prepare.lock"} | ({"work"} if noting else set())
    return sorted(found.name for found in folder.iterdir() if found.name not in begun)[:5]


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
