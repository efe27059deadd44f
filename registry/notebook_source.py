"""Source files of components that were defined in a notebook cell, so that other processes can load them.

    # mixer 'mine', as it was defined in a notebook
    from torch import Tensor                      the imports that it needs
    HALF = 0.5                                    constants, with the value that they have now
    def scale(x): return HALF * x                 functions and classes of any cell, without `register`
    class Mine(Mixer): ...
    hqlt_lab.registry.register("mixer", "mine")(Mine)

IPython keeps the text of each executed cell in `linecache`. A name that the component uses is defined in the file if it
was imported, is a constant (number, string, None, or a tuple of these), a function or a class of a cell, or is assigned
in the same cell as its user. Any other name is an error, which lists all of them.
"""

import ast
import builtins
import inspect
import linecache
import os
import symtable
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Any, NamedTuple

from hqlt_lab.errors import RegistryError, format_names
from hqlt_lab.hashing import hash_chunks
from hqlt_lab.registry.entries import find_factory, find_registering_file, register

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
DEFINITION_TYPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
CONSTANT_TYPES = (int, float, complex, bool, str, bytes, type(None))
FILE_HINT = 'Or put the component into a file and load it: lab.load_components("my_file.py").'


class SourceFile(NamedTuple):
    """Name and text of the file of a component. The name includes a hash of the text."""

    name: str
    text: str


def generate_source(kind: str, name: str) -> SourceFile:
    """Return a file that registers a component of a notebook. Raise RegistryError if it uses names of other cells."""
    factory = find_factory(kind, name)
    cells = list_cells()
    located = locate_definition(factory, cells, find_registering_file(kind, name))
    if located is None:
        raise RegistryError.at(
            kind,
            "source_not_available",
            f"the source code of {name!r} is not available, so workers cannot load it.",
            f"Define it by `class` or `def`, not inside a function, in a cell of a notebook. {FILE_HINT}",
        )
    collector = SourceCollector(vars(sys.modules[factory.__module__]), factory.__module__, cells)
    collector.add_definition(factory.__name__, *located)
    if collector.missing:
        missing = format_names(f"{missing} ({reason})" for missing, reason in collector.missing.items())
        raise RegistryError.at(
            kind,
            "names_not_in_source",
            f"{name!r} was defined in a notebook and uses names that cannot be copied to the workers: {missing}.",
            f"Define them in the cell of the component. {FILE_HINT}",
        )
    text = "\n".join(
        [
            f"# {kind} {name!r}, as it was defined in a notebook",
            *(["from __future__ import annotations"] if uses_future_annotations(cells) else []),
            *sorted({*collector.imports, "import hqlt_lab.registry"}),
            *(f"\n{statement}" for statement in collector.statements),
            f'\nhqlt_lab.registry.register("{kind}", "{name}")({factory.__name__})\n',
        ]
    )
    return SourceFile(f"{name}_{hash_chunks([text.encode()], 8)}.py", text)


class SourceCollector:
    """Collects the imports and statements that define a name of a notebook and all names that it uses."""

    def __init__(self, namespace: dict[str, Any], module: str, cells: dict[str, str]) -> None:
        self.namespace, self.module, self.cells = namespace, module, cells
        self.visited: set[str] = set()
        self.imports: list[str] = []
        self.statements: list[str] = []  # in an order in which they can be executed
        self.missing: dict[str, str] = {}  # name -> why it cannot be defined

    def add_definition(self, name: str, node: Definition, cell: str) -> None:
        """Add a function or class of a cell, after everything that it uses."""
        self.visited.add(name)
        lines = cell.splitlines()
        register_calls = [decorator for decorator in node.decorator_list if self.is_register_call(decorator)]
        omitted = {line for call in register_calls for line in range(call.lineno, (call.end_lineno or 0) + 1)}
        first = min(part.lineno for part in (node, *node.decorator_list))
        kept_lines = [line for line in range(first, (node.end_lineno or 0) + 1) if line not in omitted]
        self.add_statement("\n".join(lines[line - 1] for line in kept_lines), cell)

    def add_statement(self, statement: str, cell: str) -> None:
        """Add a statement of a cell, after everything that it uses."""
        for name in find_global_names(statement):
            if name not in self.visited and not (name.startswith("__") and name.endswith("__")):
                self.visited.add(name)
                self.add_name(name, statement, cell)
        self.statements.append(statement)

    def add_name(self, name: str, user: str, cell: str) -> None:
        """Add the definition of a global name that the statement `user` of a cell uses."""
        if name not in self.namespace:
            if not hasattr(builtins, name):
                self.missing[name] = "not defined"
            return
        value = self.namespace[name]
        if imports := find_imports(name, value, user, self.module, self.cells):
            self.imports += imports
        elif is_constant(value):
            self.statements.append(f"{name} = {value!r}")
        elif getattr(value, "__module__", None) == self.module and (
            located := locate_definition(value, self.cells, None)
        ):
            self.add_definition(value.__name__, *located)
            if value.__name__ != name:
                self.statements.append(f"{name} = {value.__name__}")
        elif assignment := find_assignment(name, cell):
            self.add_statement(assignment, cell)
        else:
            self.missing[name] = f"a {type(value).__name__} of another cell"

    def is_register_call(self, decorator: ast.expr) -> bool:
        """Return whether a decorator is a call of the lab's `register`."""
        return isinstance(decorator, ast.Call) and self.evaluate(decorator.func) is register

    def evaluate(self, node: ast.expr) -> Any:
        """Return the value of a name or of a chain of attributes such as `lab.register`; None for other expressions."""
        if isinstance(node, ast.Attribute):
            return getattr(self.evaluate(node.value), node.attr, None)
        return self.namespace.get(node.id) if isinstance(node, ast.Name) else None


def list_cells() -> dict[str, str]:
    """Return the text of every executed cell, by the file name that its code has."""
    return {
        file: "".join(entry[2])
        for file, entry in linecache.cache.items()
        if len(entry) == 4 and entry[1] is None and not os.path.exists(file)  # IPython sets no modification time
    }


@lru_cache(maxsize=4096)
def parse_cell(text: str) -> ast.Module:
    """Return the syntax tree of a cell; an empty one if it is not Python."""
    try:
        return ast.parse(text)
    except SyntaxError:
        return ast.Module(body=[], type_ignores=[])


def locate_definition(
    value: Callable[..., Any], cells: dict[str, str], registering_file: str | None
) -> tuple[Definition, str] | None:
    """Return the node and the cell of a top-level function or class; None if the cell is not known for certain."""
    name = getattr(value, "__name__", None)
    files = [registering_file, *(code.co_filename for code in list_code_objects(value))]
    for file in files:
        if file in cells and (node := find_definition(name, cells[file])):
            return node, cells[file]
    # a class without methods has no code object; a single definition of its name must be it
    candidates = {cell: node for cell in cells.values() if (node := find_definition(name, cell))}
    return (*candidates.values(), *candidates) if len(candidates) == 1 else None  # type: ignore[return-value]


def list_code_objects(value: Any) -> Iterator[CodeType]:
    """Yield the code objects of a function, or of the methods of a class."""
    for function in (value, *(vars(value).values() if inspect.isclass(value) else ())):
        code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
        if isinstance(code, CodeType):
            yield code


def find_definition(name: str | None, cell: str) -> Definition | None:
    """Return the last function or class of this name at the top level of a cell."""
    nodes = [node for node in parse_cell(cell).body if isinstance(node, DEFINITION_TYPES) and node.name == name]
    return nodes[-1] if nodes else None


def find_assignment(name: str, cell: str) -> str | None:
    """Return the last statement at the top level of a cell that assigns this name alone."""
    for node in reversed(parse_cell(cell).body):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:  # noqa: SIM102
            if len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id == name:
                return ast.get_source_segment(cell, node)
    return None


def find_global_names(statement: str) -> list[str]:
    """Return the global names that a statement reads, in functions and classes inside it too."""
    tables, names = [symtable.symtable(statement, "<cell>", "exec")], dict[str, None]()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        names |= {
            symbol.get_name(): None
            for symbol in table.get_symbols()
            if symbol.is_referenced() and (symbol.is_global() or table.get_type() == "module")
        }
    return sorted(names)


def find_imports(name: str, value: Any, user: str, module: str, cells: dict[str, str]) -> list[str]:
    """Return import statements that bind this name to this value, as cells wrote them if possible; else []."""
    statements = dict.fromkeys(
        statement
        for cell in cells.values()
        for node in ast.walk(parse_cell(cell))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for statement in format_imports(node, name, value, user)
    )
    if statements:
        return list(statements)
    if isinstance(value, ModuleType) and sys.modules.get(value.__name__) is value:
        return [f"import {value.__name__} as {name}"]
    owner, attribute = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(owner, str) or owner == module or not isinstance(attribute, str):
        return []
    is_importable = getattr(sys.modules.get(owner), attribute, None) is value
    return [f"from {owner} import {attribute} as {name}"] if is_importable else []


def format_imports(node: ast.Import | ast.ImportFrom, name: str, value: Any, user: str) -> Iterator[str]:
    """Yield the parts of an import statement that bind this name to this value."""
    for alias in node.names:
        suffix = f" as {alias.asname}" if alias.asname else ""
        if isinstance(node, ast.ImportFrom):
            imported = getattr(sys.modules.get(node.module or ""), alias.name, node)
            if (alias.asname or alias.name) == name and imported is value and not node.level:
                yield f"from {node.module} import {alias.name}{suffix}"
        elif alias.asname == name and sys.modules.get(alias.name) is value:
            yield f"import {alias.name}{suffix}"
        # `import torch.nn.functional` binds `torch`; the submodule is imported if its dotted name is used
        elif not alias.asname and alias.name.partition(".")[0] == name and sys.modules.get(name) is value:
            yield f"import {alias.name if alias.name in user else name}"


def is_constant(value: Any) -> bool:
    """Return whether the value is a number, string or None, or a tuple of these, that its `repr` reproduces."""
    if type(value) is tuple:
        return all(map(is_constant, value))
    return type(value) in CONSTANT_TYPES and value == value and value not in (float("inf"), -float("inf"))


def uses_future_annotations(cells: dict[str, str]) -> bool:
    """Return whether a cell has `from __future__ import annotations`, which holds for all later cells too."""
    return any(
        isinstance(node, ast.ImportFrom) and node.module == "__future__" and node.names[0].name == "annotations"
        for cell in cells.values()
        for node in parse_cell(cell).body
    )
