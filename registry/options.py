"""Options of a component, read from the parameters of its factory, and type checks of their values."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hqlt_lab.registry.entries import find_factory
from hqlt_lab.registry.field_docs import read_parameter_docs
from hqlt_lab.registry.kinds import KINDS

REQUIRED = inspect.Parameter.empty
INFINITY, MAX_INT = float("inf"), 2**63


@dataclass(frozen=True)
class Option:
    """An option of a component: a parameter of its factory that an experiment can set."""

    name: str
    type: Any
    default: Any = REQUIRED
    help: str = ""  # one sentence

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED

    def __str__(self) -> str:
        return f"{self.name}: {format_type(self.type)}" + ("" if self.is_required else f" = {self.default}")


def options(kind: str, name: str, location: str | None = None) -> Mapping[str, Option]:
    """Return the options of a component by name, in the order of its signature."""
    return list_settable_options(kind, find_factory(kind, name, location))


@cache
def list_settable_options(kind: str, factory: Callable[..., Any]) -> Mapping[str, Option]:
    """Return the parameters of a factory that the lab does not provide. Cached: large studies call it very often."""
    return {key: option for key, option in inspect_parameters(factory).items() if key not in KINDS[kind].provided}


@cache
def inspect_parameters(factory: Callable[..., Any]) -> Mapping[str, Option]:
    """Return all parameters of a factory by name, both options and arguments that the lab provides."""
    hints = get_type_hints(factory.__init__ if inspect.isclass(factory) else factory)
    docs = read_parameter_docs(factory)
    return {
        name: Option(name, hints.get(name, Any), normalize_default(parameter.default), docs.get(name, ""))
        for name, parameter in inspect.signature(factory).parameters.items()
        # a class without __init__ has the *args and **kwargs of nn.Module
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }


def normalize_default(default: Any) -> Any:
    """Return a tuple default as a list, since YAML has only lists: (3, 40) and [3, 40] are the same value."""
    return list(default) if isinstance(default, tuple) else default


def matches_type(value: Any, expected_type: Any) -> bool:
    """Return whether a value from YAML has the type of a signature.

    An int is accepted as a float; a bool is not an int. NaN, infinity and integers beyond 64 bits are rejected.
    """
    origin, inner = get_origin(expected_type), get_args(expected_type)
    if expected_type is Any:
        return True
    if origin in (Union, UnionType):
        return any(matches_type(value, member) for member in inner)
    if origin is Literal:
        return any(value == choice and type(value) is type(choice) for choice in inner)
    if origin in (list, tuple):
        return isinstance(value, list | tuple) and all(matches_type(item, inner[0]) for item in value)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping)
    if expected_type is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < INFINITY
    if expected_type is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < MAX_INT
    return isinstance(value, NoneType if expected_type is None else expected_type)


def suggest_integer(value: Any, expected_type: Any) -> str:
    """Return "Write 1000." for a float such as 1e3 where an integer is expected, else ""."""
    if isinstance(value, float) and value.is_integer() and matches_type(int(value), expected_type):
        return f"Write {int(value)}."
    return ""


def format_type(type_hint: Any) -> str:
    """Return a type in the terms of a YAML file, such as `int | null` or `list of float`."""
    origin, inner = get_origin(type_hint), get_args(type_hint)
    if origin in (Union, UnionType):
        return " | ".join(format_type(member) for member in inner)
    if origin is Literal:
        return " | ".join(str(choice) for choice in inner)
    if type_hint in (None, NoneType):
        return "null"
    if origin in (list, tuple):
        return f"list of {format_type(inner[0])}"
    return getattr(type_hint, "__name__", str(type_hint))
