"""Reference page of the Python API: every public name of `hqlt_lab` with its signature and docstring."""

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

import hqlt_lab
from hqlt_lab.reference_pages.markdown import heading_lines, list_item, render_page
from hqlt_lab.registry import read_field_docs

PYTHON_INTRODUCTION = (
    "This page lists the names of `import hqlt_lab as lab`. Names are loaded on first use, so the import is fast. "
    "Everything that is not listed here is internal and may change."
)
MAX_LINE_WIDTH = 100


def python_api_page() -> str:
    lines = [line for name in sorted(hqlt_lab.__all__, key=str.lower) for line in entry_lines(name)]
    return render_page("Python, name by name", PYTHON_INTRODUCTION, *lines)


def entry_lines(name: str) -> Iterator[str]:
    """Yield heading, signature and docstring of a public name, and the fields of a dataclass."""
    obj = getattr(hqlt_lab, name)
    yield from heading_lines(2, f"lab.{name}")
    yield from ("```python", *format_signature(name, obj), "```", "", read_docstring(obj))
    if inspect.isclass(obj) and is_dataclass(obj):
        yield ""
        for field, description in read_field_docs(obj).items():
            yield from list_item(field, [], description)


def format_signature(name: str, obj: Any) -> list[str]:
    """Return a signature on one line, or with a line per parameter if it is longer than MAX_LINE_WIDTH."""
    signature = inspect.signature(obj)
    parameters = [strip_address_default(parameter) for parameter in signature.parameters.values()]
    signature = signature.replace(parameters=parameters)
    head = f"lab.{name}"
    line = f"{head}{clean_annotations(signature)}"
    if len(line) <= MAX_LINE_WIDTH:
        return [line]
    lines = []
    star_is_missing = True
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and star_is_missing:
            lines.append("    *,")
            star_is_missing = False
        lines.append(f"    {clean_annotations(parameter)},")
    returns = (
        ""
        if signature.return_annotation is signature.empty
        else f" -> {clean_annotations(inspect.formatannotation(signature.return_annotation))}"
    )
    return [f"{head}(", *lines, f"){returns}"]


def strip_address_default(parameter: inspect.Parameter) -> inspect.Parameter:
    """Replace a default whose repr contains a memory address by an ellipsis."""
    return parameter.replace(default=...) if " at 0x" in repr(parameter.default) else parameter


def clean_annotations(annotation: Any) -> str:
    """Return a signature or annotation as text, without quotes and module paths."""
    text = re.sub(r"(PosixPath|WindowsPath)\('(.*?)'\)", r"Path('\2')", str(annotation)).replace("~", "")
    text = re.sub(r"(^|: |-> )'([^']*)'", r"\1\2", text)
    return re.sub(r"\b(?:\w+\.)+(?=[A-Z])", "", text)


def read_docstring(obj: Any) -> str:
    """Return the docstring of an object, or that of its module if it has none."""
    return inspect.getdoc(obj) or inspect.getdoc(importlib.import_module(obj.__module__)) or ""
