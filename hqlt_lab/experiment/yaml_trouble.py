"""Where a YAML parser gave up: the lines around the place, and the parser's own words."""

import re
from typing import NamedTuple

from yaml import MarkedYAMLError

BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # what ends a line of YAML
SHOWN, SEEN = 60, 500  # letters of a line that are repeated, and that are looked at


class Trouble(NamedTuple):
    """Where the parser gave up, and what it was reading then."""

    lines: list[str]
    problem: str  # the parser's own words
    line: int  # both counted from 0
    column: int
    began: int | None  # in which line that which it was reading began
    opening: str  # the letter there

    @property
    def here(self) -> str:
        """The line."""
        return self.lines[self.line]

    @property
    def rest(self) -> str:
        """What comes there."""
        return self.here[self.column :].strip()

    @property
    def letter(self) -> str:
        """Its first letter."""
        return self.rest[:1]

    @property
    def expects_key(self) -> bool:
        """Whether a mapping would go on here, in the words of either parser."""
        return "expected key" in self.problem or "<block end>" in self.problem

    def above(self) -> int | None:
        """The last line before this one that says anything."""
        told = (n for n in reversed(range(self.line)) if self.lines[n].split("#")[0].strip())
        return next(told, None)


def trouble_of(error: MarkedYAMLError, text: str) -> Trouble:
    """What is known of it."""
    lines = [*(line[:SEEN] for line in BREAK.split(text)), ""]  # a text may end where no line begins
    at, began = error.problem_mark or error.context_mark, error.context_mark
    line, column = (min(at.line, len(lines) - 1), at.column) if at else (0, 0)
    opening = lines[began.line][began.column : began.column + 1] if began and began.line < len(lines) else ""
    return Trouble(lines, error.problem or "", line, column, began.line if opening else None, opening)


def last_open(lines: list[str]) -> tuple[int, str] | None:
    """The line and the letter of the last bracket that nothing closes, quotes left out of account."""
    open_ones: list[tuple[int, str]] = []
    for number, line in enumerate(lines):
        for letter in line:
            if letter in "{[":
                open_ones.append((number, letter))
            elif letter in "}]" and open_ones:
                open_ones.pop()
    return open_ones[-1] if open_ones else None


def shown(text: str) -> str:
    """A few letters of it, in quotes."""
    return repr(text[:SHOWN])


def quoted(text: str) -> str:
    """As it can be written; what would move a terminal's cursor is not repeated."""
    some = text if len(text) <= 2 * SHOWN else f"{text[: 2 * SHOWN]}..."
    return repr(some) if not some.isprintable() or '"' in some else f'"{some}"'
