"""All sentences in the source code that users may read: errors, warnings, progress, notes of reports, help texts.

    hqlt_lab/track/ui/network.py | --port {requested_port}: the port is in use. Use another port, or ...

A sentence is a string of at least three words with a full stop, question mark or colon at its end or before a blank;
values that are filled in are in braces.  Docstrings are not messages, except those of commands, which are on the page
docs/reference/command_line.md, and those of components, which `hqlt show` prints.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import hqlt_lab

ROOT = Path(hqlt_lab.__file__).parents[1]
TEXTS_FILE = Path(__file__).with_name("message_texts.txt")
SENTENCE = re.compile(r"\S+ \S+ .*[.?:](\s|$)", re.DOTALL)


def render_texts() -> Iterator[str]:
    """Yield one line for each sentence of each source file."""
    for folder in ("hqlt_lab", "registry", "components"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            texts = dict.fromkeys(find_texts(ast.parse(file.read_text())))
            yield from (f"{file.relative_to(ROOT)} | {text}" for text in texts if SENTENCE.search(text))


def find_texts(node: ast.AST) -> Iterator[str]:
    """Yield the strings below a node in the order of the file, with fields in braces; docstrings are left out."""
    if (text := render_text(node)) is not None:
        yield re.sub(r"\s+", " ", text).strip()
        return
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
            yield from find_texts(child)


def render_text(node: ast.AST) -> str | None:
    """Return a string, an f-string or a sum of them as one text; None for other nodes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(render_text(value) or "" for value in node.values)
    if isinstance(node, ast.FormattedValue):
        return "{" + ast.unparse(node.value) + "}"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = render_text(node.left), render_text(node.right)
        return f"{parts[0] or '{...}'}{parts[1] or '{...}'}" if any(parts) else None
    return None
