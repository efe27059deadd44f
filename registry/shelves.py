"""A shelf is a package of parts, one file each: a file that is there is registered, with no other edit."""

import importlib
import pkgutil

from hqlt_lab.registry.kinds import KINDS
from hqlt_lab.registry.outside import load_declared

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
