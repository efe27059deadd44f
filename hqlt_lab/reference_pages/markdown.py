"""Building blocks of a Markdown page, each a list of lines."""

import re
from collections.abc import Iterable

GENERATED_NOTE = "<!-- Written by `make reference` from the code; change it there. -->"


def render_page(title: str, *lines: str) -> str:
    """Join title and lines to a page, with at most one empty line in a row."""
    text = "\n".join([GENERATED_NOTE, f"# {title}", "", *lines]).rstrip() + "\n"
    return re.sub(r"\n{3,}", "\n\n", text)


def heading_lines(level: int, text: str) -> list[str]:
    return ["", f"{'#' * level} {text}", ""]


def list_item(name: str, facts: Iterable[str], description: str) -> list[str]:
    """Return a list item for a key or option: name, facts such as type and default, and its description below."""
    summary = ", ".join(fact for fact in facts if fact)
    return [f"- **`{name}`**{f' ({summary})' if summary else ''}", f"  {description}".replace("*", r"\*").rstrip()]


def inline_code(text: str) -> str:
    return f"`{text}`"
