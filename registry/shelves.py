"""A shelf is a package of parts, one file each: a file that is there is registered, with no other edit.

A part's file has its name, so that names can be read off a shelf without importing what stands on it.
"""

import importlib
import importlib.util
import pkgutil
import re
from pathlib import Path

from hqlt_lab.registry.kinds import KINDS
from hqlt_lab.registry.outside import declared, load_declared

_stocked: set[str] = set()


def stock(kind: str) -> None:
    """Import every file on the shelf of that kind, once, and whatever outside parts were declared."""
    if kind not in _stocked:
        open_shelf(kind)
        _stocked.add(kind)
        load_declared()


def open_shelf(kind: str) -> None:
    """Import every file on the lab's own shelf of that kind."""
    shelf = KINDS[kind].shelf
    if shelf is not None:
        package = importlib.import_module(shelf)
        for module in pkgutil.iter_modules(package.__path__):
            if not module.name.startswith("_"):
                importlib.import_module(f"{shelf}.{module.name}")


def titles(kind: str) -> list[str]:
    """The names of that kind, read off the shelf and off the files that were declared; no part is imported."""
    shelf = KINDS[kind].shelf
    found = importlib.util.find_spec(shelf) if shelf else None
    places = list(found.submodule_search_locations or ()) if found else []
    own = [module.name for module in pkgutil.iter_modules(places) if not module.name.startswith("_")]
    return sorted({*own, *(name for file in declared() for name in names_in(file, kind))})


def names_in(file: Path, kind: str) -> list[str]:
    """What a file would register of that kind, as far as it says so plainly."""
    return re.findall(rf"""register\(\s*["']{kind}["']\s*,\s*["'](\w+)["']""", file.read_text())
