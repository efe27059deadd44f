"""Find and import the built-in components of a kind.

Each kind has a package with one file per component. Every file in it is imported, so adding a file is enough to
register a component. A file has the name of its component, so names can be listed without importing anything.
"""

import importlib
import importlib.util
import pkgutil
import re
from pathlib import Path

from hqlt_lab.registry.kinds import KINDS
from hqlt_lab.registry.plugins import list_declared_files, load_declared_components

_loaded_kinds: set[str] = set()


def ensure_loaded(kind: str) -> None:
    """Import the built-in components of a kind and the declared external ones, once."""
    if kind not in _loaded_kinds:
        import_builtin(kind)
        _loaded_kinds.add(kind)
        load_declared_components()


def import_builtin(kind: str) -> None:
    """Import every public module in the package of a kind."""
    package_name = KINDS[kind].package
    if package_name is not None:
        package = importlib.import_module(package_name)
        for module in pkgutil.iter_modules(package.__path__):
            if not module.name.startswith("_"):
                importlib.import_module(f"{package_name}.{module.name}")


def list_names(kind: str) -> list[str]:
    """Return the names of a kind from file names and the text of declared files, without importing components."""
    return sorted(
        {
            *list_builtin_names(kind),
            *(name for file in list_declared_files() for name in find_registered_names(file, kind)),
        }
    )


def list_builtin_names(kind: str) -> list[str]:
    """Return the names of the built-in components of a kind, without importing them."""
    package_name = KINDS[kind].package
    spec = importlib.util.find_spec(package_name) if package_name else None
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return [module.name for module in pkgutil.iter_modules(folders) if not module.name.startswith("_")]


def find_registered_names(file: Path, kind: str) -> list[str]:
    """Return the names that a file registers with literal `register("kind", "name")` calls, found by a text search."""
    return re.findall(rf"""register\(\s*["']{kind}["']\s*,\s*["'](\w+)["']""", file.read_text())
