"""Read the documentation and the options of built-in components from their source, without importing them.

Importing the components imports torch, which takes seconds; `hqlt list` and `hqlt show` need only their text.
The reader understands what built-in components use: functions, classes with `__init__`, and dataclasses that inherit
from classes of hqlt_lab. For anything else it raises SourceUnreadable, and the component is imported instead.
"""

import ast
import builtins
import collections.abc
import importlib.util
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin

from hqlt_lab.registry.discovery import find_builtin_modules, list_names
from hqlt_lab.registry.entries import Documented, available, canonical_name, describe, list_interactive_components
from hqlt_lab.registry.error_origin import find_external_components
from hqlt_lab.registry.kinds import KINDS, get_kind
from hqlt_lab.registry.options import Option, normalize_default, options
from hqlt_lab.registry.plugins import list_declared_files, list_entry_points, list_loaded_files

LIBRARIES = {"typing": typing, "collections.abc": collections.abc}  # the modules whose types occur in annotations
Definition = ast.FunctionDef | ast.ClassDef


class SourceUnreadable(Exception):
    """The source of a component uses something that this reader does not understand."""


@dataclass(frozen=True)
class ComponentInfo(Documented):
    """Documentation, options and source position of a component, known without building it."""

    options: Mapping[str, Option]


class Module(NamedTuple):
    """A parsed source file."""

    file: str
    tree: ast.Module


def list_components_of_kind(kind: str, pattern: str = "*") -> list[str]:
    """Return what `available` returns; built-in components are imported only if there are external ones."""
    get_kind(kind)
    files = [*list_loaded_files(), *list_declared_files()]
    if files or list_entry_points() or find_external_components() or list_interactive_components():
        return available(kind, pattern)
    return [name for name in list_names(kind) if fnmatchcase(name, canonical_name(pattern))]


def inspect_component(kind: str, name: str) -> ComponentInfo:
    """Return the documentation and the options of a component; a built-in one is not imported if possible."""
    get_kind(kind)
    if canonical_name(name) in find_builtin_modules(kind):
        with suppress(SourceUnreadable):
            return read_component_source(kind, canonical_name(name))
    entry = describe(kind, name)
    return ComponentInfo(entry.kind, entry.name, entry.doc, entry.file, entry.line, options(kind, name))


def read_component_source(kind: str, name: str) -> ComponentInfo:
    """Return the documentation and the options of a built-in component from its source."""
    module = parse_module(find_builtin_modules(kind)[name])
    definitions = (node for node in module.tree.body if isinstance(node, Definition) and node.decorator_list)
    for node in definitions:
        if any(ast.unparse(decorator) == f"register({kind!r}, {name!r})" for decorator in node.decorator_list):
            doc = ast.get_docstring(node) or ast.get_docstring(module.tree) or ""
            options = read_options(module, node, KINDS[kind].provided)
            return ComponentInfo(kind, name, doc, module.file, node.decorator_list[0].lineno, options)
    raise SourceUnreadable(f"{module.file} does not register {kind} {name!r}.")


@cache
def parse_module(name: str) -> Module:
    """Return the source of a module of hqlt_lab, which is not imported; its parent packages are."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise SourceUnreadable(f"{name} has no source file.")
    return Module(spec.origin, ast.parse(Path(spec.origin).read_text()))


def read_options(module: Module, node: Definition, provided: Sequence[str]) -> dict[str, Option]:
    """Return the options of a factory by name: its parameters without those that the lab provides."""
    if isinstance(node, ast.FunctionDef):
        return dict(read_parameters(module, node.args, provided))
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and member.name == "__init__":
            return dict(read_parameters(module, member.args, ("self", *provided)))
    inherited: dict[str, Option] = {}
    for base in node.bases:
        if (definition := find_class(module, ast.unparse(base))) is not None:
            inherited |= read_options(*definition, provided)
    is_dataclass = any(ast.unparse(decorator).startswith("dataclass") for decorator in node.decorator_list)
    return inherited | dict(read_fields(module, node, inherited, provided)) if is_dataclass else inherited


def find_class(module: Module, name: str) -> tuple[Module, ast.ClassDef] | None:
    """Return the class of that name and its module; None if it is not of hqlt_lab, such as nn.Module."""
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return module, node
    source = find_import(module, name)
    return find_class(parse_module(source), name) if source and source.startswith("hqlt_lab.") else None


def find_import(module: Module, name: str) -> str | None:
    """Return the module from which a name is imported."""
    imports = (node for node in module.tree.body if isinstance(node, ast.ImportFrom))
    return next((node.module for node in imports if any(alias.name == name for alias in node.names)), None)


def read_parameters(module: Module, arguments: ast.arguments, ignored: Sequence[str]) -> Iterator[tuple[str, Option]]:
    """Yield the parameters of a function; *args and **kwargs are left out."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults)) + [*arguments.defaults]
    parameters = zip([*positional, *arguments.kwonlyargs], [*defaults, *arguments.kw_defaults], strict=True)
    for argument, default in parameters:
        if argument.arg not in ignored:
            yield argument.arg, make_option(module, argument.arg, argument.annotation, default)


def read_fields(
    module: Module, node: ast.ClassDef, inherited: Mapping[str, Option], ignored: Sequence[str]
) -> Iterator[tuple[str, Option]]:
    """Yield the fields that a dataclass defines itself; without a string below it, a field keeps the inherited one."""
    for member, below in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(member, ast.AnnAssign) or not isinstance(member.target, ast.Name):
            continue
        name = member.target.id
        if name in ignored or ast.unparse(member.annotation).startswith("ClassVar"):
            continue
        is_doc = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        doc = below.value.value if is_doc else inherited[name].help if name in inherited else ""  # type: ignore[union-attr]
        yield name, make_option(module, name, member.annotation, member.value, doc)


def make_option(
    module: Module, name: str, annotation: ast.expr | None, default: ast.expr | None, doc: str = ""
) -> Option:
    """Return an option from the expressions of its annotation and its default."""
    hint = Any if annotation is None else evaluate(module, annotation)
    if get_origin(hint) is Annotated:
        hint, doc = get_args(hint)[:2]
    if default is None:
        return Option(name, hint, help=doc)
    return Option(name, hint, normalize_default(evaluate(module, default)), doc)


def evaluate(module: Module, expression: ast.expr) -> Any:
    """Return the value of a constant expression or a type, such as `int | None` or `Literal["a", "b"]`."""
    with suppress(ValueError):
        return ast.literal_eval(expression)
    match expression:
        case ast.Name(id=name):
            return resolve_name(module, name)
        case ast.Tuple(elts=elements):
            return tuple(evaluate(module, element) for element in elements)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return evaluate(module, left) | evaluate(module, right)
        case ast.Subscript(value=generic, slice=arguments):
            return evaluate(module, generic)[evaluate(module, arguments)]
    raise SourceUnreadable(f"{module.file}, line {expression.lineno}: {ast.unparse(expression)}")


def resolve_name(module: Module, name: str) -> Any:
    """Return the value of a name in a module: a constant or alias, an imported one, or a built-in type."""
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == name for target in node.targets):
            return evaluate(module, node.value)
    source = find_import(module, name)
    if source in LIBRARIES:
        return getattr(LIBRARIES[source], name)
    if source and source.startswith("hqlt_lab."):
        return resolve_name(parse_module(source), name)
    if source is None and isinstance(getattr(builtins, name, None), type):
        return getattr(builtins, name)
    raise SourceUnreadable(f"{module.file}: {name}")
