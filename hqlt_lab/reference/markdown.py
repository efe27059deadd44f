"""A page as a list of lines, from a few kinds of them."""

import re
from collections.abc import Iterable

MADE = "<!-- Written by `make reference` from the code; change it there. -->"


def page(title: str, *lines: str) -> str:
    """A whole page."""
    text = "\n".join([MADE, f"# {title}", "", *lines]).rstrip() + "\n"
    return re.sub(r"\n{3,}", "\n\n", text)


def heading(level: int, words: str) -> list[str]:
    return ["", f"{'#' * level} {words}", ""]


def item(name: str, facts: Iterable[str], says: str) -> list[str]:
    """A key or option: its name, then type, default and the like, then its sentence below."""
    told = ", ".join(fact for fact in facts if fact)
    return [f"- **`{name}`**{f' ({told})' if told else ''}", f"  {says}".replace("*", r"\*").rstrip()]


def code(words: str) -> str:
    return f"`{words}`"
