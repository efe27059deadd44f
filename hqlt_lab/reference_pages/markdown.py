"""Building blocks of a Markdown page, each a list of lines."""

import re
import textwrap
from collections.abc import Iterable

GENERATED_NOTE = "<!-- Written by `make reference` from the code; change it there. -->"
LINE_LENGTH = 120


def render_page(title: str, *lines: str) -> str:
    """Join title and lines to a page, with at most one empty line in a row."""
    text = "\n".join([GENERATED_NOTE, f"# {title}", "", *lines]).rstrip() + "\n"
    return "\n".join(map(wrap_line, re.sub(r"\n{3,}", "\n\n", text).split("\n")))


def wrap_line(line: str) -> str:
    """Wrap a line of prose or of a list; code, which is indented by 4, stays as it is."""
    if len(line) <= LINE_LENGTH or line.startswith(("    ", "#")):
        return line
    indent = "  " if line.startswith(("- ", "  ")) else ""
    return textwrap.fill(line, LINE_LENGTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def heading_lines(level: int, text: str) -> list[str]:
    return ["", f"{'#' * level} {text}", ""]


def list_item(name: str, facts: Iterable[str], description: str) -> list[str]:
    """Return a list item for a key or option: name, facts such as type and default, and its description below."""
    summary = ", ".join(fact for fact in facts if fact)
    return [f"- **`{name}`**{f' ({summary})' if summary else ''}", f"  {description}".replace("*", r"\*").rstrip()]


def inline_code(text: str) -> str:
    return f"`{text}`"
