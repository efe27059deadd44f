"""Find and import the built-in components of a kind.

Each kind has a package with one file per component, in the package itself or in its sub-packages. Every file in it is
imported, so adding a file is enough to register a component. A file has the name of its component, so names can be
listed without importing anything.
"""

import importlib
import importlib.util
import pkgutil
import re
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
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
    """Import every public module in the package of a kind and in its sub-packages."""
    for module in find_builtin_modules(kind).values():
        importlib.import_module(module)


def list_names(kind: str) -> list[str]:
    """Return the names of a kind from file names and the text of declared files, without importing components."""
    return sorted(
        {
            *find_builtin_modules(kind),
            *(name for file in list_declared_files() for name in find_registered_names(file, kind)),
        }
    )


def find_builtin_modules(kind: str) -> dict[str, str]:
    """Return the module of each built-in component of a kind by name, without importing it."""
    package = KINDS[kind].package
    spec = importlib.util.find_spec(package) if package else None
    if package is None or spec is None:
        return {}
    return {module.rpartition(".")[2]: module for module in iter_public_modules(package, spec)}


def iter_public_modules(package: str, spec: ModuleSpec) -> Iterator[str]:
    """Yield the public modules of a package and of its sub-packages."""
    for module in pkgutil.iter_modules(spec.submodule_search_locations):
        if module.name.startswith("_"):
            continue
        name = f"{package}.{module.name}"
        if module.ispkg:
            inner_spec = importlib.util.find_spec(name)
            assert inner_spec is not None
            yield from iter_public_modules(name, inner_spec)
        else:
            yield name


def find_registered_names(file: Path, kind: str) -> list[str]:
    """Return the names that a file registers with literal `register("kind", "name")` calls, found by a text search."""
    return re.findall(rf"""register\(\s*["']{kind}["']\s*,\s*["'](\w+)["']""", file.read_text())
