"""The sentence that stands with a setting in the code: under a field, or in the annotation of a parameter.

lr: float = 1e-3
'''Peak learning rate.'''                                       a field of a dataclass

def rope(base: Annotated[float, "Of the wave lengths."] = 10_000.0)     a parameter
"""

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints


def noted(maker: Callable[..., Any]) -> dict[str, str]:
    """What is said of the parameters of a maker, by name."""
    try:
        said = sentences(maker) if inspect.isclass(maker) and is_dataclass(maker) else {}
    except (OSError, TypeError):  # defined at a prompt
        said = {}
    hints = get_type_hints(maker.__init__ if inspect.isclass(maker) else maker, include_extras=True)
    in_place = {name: get_args(hint)[1] for name, hint in hints.items() if get_origin(hint) is Annotated}
    return said | {name: words for name, words in in_place.items() if isinstance(words, str)}


def sentences(maker: type) -> dict[str, str]:
    """The string under each field, for help texts and editors; of inherited fields too."""
    found: dict[str, str] = {}
    for one in reversed(maker.__mro__):
        if is_dataclass(one):
            found |= own_sentences(one)
    return found


def own_sentences(maker: type) -> dict[str, str]:
    """The same for the fields that stand in the class itself."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(maker))).body
    assert isinstance(tree, ast.ClassDef)
    names = {field.name for field in fields(maker)}
    found = {}
    for above, below in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(above, ast.AnnAssign) and isinstance(above.target, ast.Name) and isinstance(below, ast.Expr):
            text = below.value
            if above.target.id in names and isinstance(text, ast.Constant) and isinstance(text.value, str):
                found[above.target.id] = text.value
    return found
