"""A part's options are the parameters of its maker: name, type, default; and the check of a value against them."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hqlt_lab.registry.entries import find
from hqlt_lab.registry.kinds import KINDS
from hqlt_lab.registry.sentences import noted

REQUIRED = inspect.Parameter.empty
INFINITE, LARGEST_INT = float("inf"), 2**63


@dataclass(frozen=True)
class Option:
    """One setting of a part."""

    name: str
    type: Any
    default: Any = REQUIRED
    says: str = ""  # what it is, in a sentence

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    def __str__(self) -> str:
        return f"{self.name}: {spelled(self.type)}" + ("" if self.required else f" = {self.default}")


def options(kind: str, name: str, at: str | None = None) -> Mapping[str, Option]:
    """What can be set on that part, in the order of its signature."""
    return settable(kind, find(kind, name, at))


@cache
def settable(kind: str, maker: Callable[..., Any]) -> Mapping[str, Option]:
    """What a file may set of all that the maker asks for; a large study asks a million times."""
    return {key: option for key, option in parameters(maker).items() if key not in KINDS[kind].given}


@cache
def parameters(maker: Callable[..., Any]) -> Mapping[str, Option]:
    """Everything the maker asks for, options and what the lab hands over alike."""
    hints = get_type_hints(maker.__init__ if inspect.isclass(maker) else maker)
    said = noted(maker)
    return {
        name: Option(name, hints.get(name, Any), as_in_yaml(parameter.default), said.get(name, ""))
        for name, parameter in inspect.signature(maker).parameters.items()
        if parameter.kind
        not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)  # nn.Module's own, where none is given
    }


def as_in_yaml(default: Any) -> Any:
    """A signature's tuple is a list in YAML: (3, 40) and [3, 40] are one value."""
    return list(default) if isinstance(default, tuple) else default


def fits(value: Any, wanted: Any) -> bool:
    """Whether a value from YAML is of the type that a signature asks for.

    An int is a float; a bool is not an int; nan, infinity and what takes more than 64 bits are no numbers.
    """
    origin, inner = get_origin(wanted), get_args(wanted)
    if wanted is Any:
        return True
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in inner)
    if origin is Literal:
        return any(value == one and type(value) is type(one) for one in inner)
    if origin in (list, tuple):
        return isinstance(value, list | tuple) and all(fits(item, inner[0]) for item in value)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping)
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < INFINITE
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST_INT
    return isinstance(value, NoneType if wanted is None else wanted)


def rewritten(value: Any, wanted: Any) -> str:
    """How a value that does not fit is written so that it does, in a sentence, where that is plain."""
    if isinstance(value, float) and value.is_integer() and fits(int(value), wanted):
        return f" Write {int(value)}."
    return ""


def spelled(wanted: Any) -> str:
    """A type in the words of a YAML file."""
    origin, inner = get_origin(wanted), get_args(wanted)
    if origin in (Union, UnionType):
        return " | ".join(spelled(one) for one in inner)
    if origin is Literal:
        return " | ".join(str(one) for one in inner)
    if wanted in (None, NoneType):
        return "null"
    if origin in (list, tuple):
        return f"list of {spelled(inner[0])}"
    return getattr(wanted, "__name__", str(wanted))
