"""Read the description of a setting from the source: the string below a dataclass field, or an Annotated parameter.

lr: float = 1e-3
'''Peak learning rate.'''                                             a field of a dataclass

def rope(base: Annotated[float, "Base of the wavelengths."] = 10_000.0)     a parameter
"""

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints


def read_parameter_docs(factory: Callable[..., Any]) -> dict[str, str]:
    """Return the descriptions of a factory's parameters by name."""
    try:
        field_docs = read_field_docs(factory) if inspect.isclass(factory) and is_dataclass(factory) else {}
    except (OSError, TypeError):  # defined at a prompt: there is no source
        field_docs = {}
    hints = get_type_hints(factory.__init__ if inspect.isclass(factory) else factory, include_extras=True)
    annotations = {name: get_args(hint)[1] for name, hint in hints.items() if get_origin(hint) is Annotated}
    return field_docs | {name: doc for name, doc in annotations.items() if isinstance(doc, str)}


def read_field_docs(settings_type: type) -> dict[str, str]:
    """Return the string below each field of a dataclass, including inherited fields."""
    docs: dict[str, str] = {}
    for base in reversed(settings_type.__mro__):
        if is_dataclass(base):
            docs |= read_own_field_docs(base)
    return docs


def read_own_field_docs(settings_type: type) -> dict[str, str]:
    """Return the string below each field that is defined in the class itself, without inherited fields."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(settings_type))).body
    assert isinstance(tree, ast.ClassDef)
    names = {dataclass_field.name for dataclass_field in fields(settings_type)}
    docs = {}
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            text = below.value
            if field.target.id in names and isinstance(text, ast.Constant) and isinstance(text.value, str):
                docs[field.target.id] = text.value
    return docs
