"""The page of Python: every public name of `hqlt_lab`, with its signature and its words."""

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

import hqlt_lab
from hqlt_lab.reference.markdown import heading, item, page
from hqlt_lab.registry import sentences

INTRODUCTION = (
    "What `import hqlt_lab as lab` gives. Names load on first use, so that importing costs nothing. Whatever is not "
    "here is for those who work on the lab, and may change."
)
WIDE = 100


def python() -> str:
    """The whole page."""
    lines = [line for name in sorted(hqlt_lab.__all__, key=str.lower) for line in entry(name)]
    return page("Python, name by name", INTRODUCTION, *lines)


def entry(name: str) -> Iterator[str]:
    """One name."""
    thing = getattr(hqlt_lab, name)
    yield from heading(2, f"lab.{name}")
    yield from ("```python", *signature(name, thing), "```", "", words(thing))
    if inspect.isclass(thing) and is_dataclass(thing):
        yield ""
        for field, says in sentences(thing).items():
            yield from item(field, [], says)


def signature(name: str, thing: Any) -> list[str]:
    """On one line, or a line per parameter where that would be long."""
    made = inspect.signature(thing)
    plain = made.replace(parameters=[tidy(one) for one in made.parameters.values()])
    head = f"lab.{name}"
    line = f"{head}{unquoted(plain)}"
    if len(line) <= WIDE:
        return [line]
    marks, lines = {one.kind: "*" for one in plain.parameters.values() if one.kind is one.KEYWORD_ONLY}, []
    for one in plain.parameters.values():
        lines += [f"    {marks.pop(one.kind)},"] if one.kind in marks else []
        lines.append(f"    {unquoted(one)},")
    ends = (
        ""
        if plain.return_annotation is plain.empty
        else f" -> {unquoted(inspect.formatannotation(plain.return_annotation))}"
    )
    return [f"{head}(", *lines, f"){ends}"]


def tidy(parameter: inspect.Parameter) -> inspect.Parameter:
    """Without defaults that print as an address."""
    return parameter.replace(default=...) if " at 0x" in repr(parameter.default) else parameter


def unquoted(signed: Any) -> str:
    """Annotations as they are read: no quotes, no module paths."""
    text = re.sub(r"(PosixPath|WindowsPath)\('(.*?)'\)", r"Path('\2')", str(signed)).replace("~", "")
    text = re.sub(r"(^|: |-> )'([^']*)'", r"\1\2", text)
    return re.sub(r"\b(?:\w+\.)+(?=[A-Z])", "", text)


def words(thing: Any) -> str:
    """Its docstring; of a thing without one of its own, that of its module."""
    return inspect.getdoc(thing) or inspect.getdoc(importlib.import_module(thing.__module__)) or ""
