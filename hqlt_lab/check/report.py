"""What the kit found: one line per promise."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Outcome = Literal["passed", "failed", "illegal"]
COLOURS = {"passed": "green", "failed": "bold red", "illegal": "yellow"}


class Broken(AssertionError):
    """A promise that the part does not keep, in a sentence."""


class Unusable(Broken):
    """The same, of a part about which nothing else can be said."""


@dataclass(frozen=True)
class Line:
    """One promise, and whether it is kept.  Illegal: a pair that the lab refuses, with its reason; no failure."""

    promise: str
    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True)
class Report:
    """All promises of one part."""

    kind: str
    name: str
    lines: tuple[Line, ...]

    @property
    def passed(self) -> bool:
        return not self.failed

    @property
    def failed(self) -> list[Line]:
        return [line for line in self.lines if line.outcome == "failed"]

    def assert_passed(self) -> None:
        """For your own tests: an AssertionError that lists what failed."""
        told = "\n".join(f"  {line.promise}: {detail}" for line, detail in said_once(self.failed))
        assert self.passed, f"{self.kind} {self.name!r} does not conform:\n{told}"

    def table(self) -> Any:
        """For a terminal."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=f"{self.kind} {self.name}", title_justify="left", box=None, show_header=False)
        for line, detail in said_once(self.lines):
            table.add_row(line.promise, Text(line.outcome, style=COLOURS[line.outcome]), Text(detail))
        return table

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        lines = [{"promise": line.promise, "outcome": line.outcome, "detail": line.detail} for line in self.lines]
        return {"kind": self.kind, "name": self.name, "passed": self.passed, "lines": lines}

    def __str__(self) -> str:
        told = (f"{line.outcome:8} {line.promise}  {detail}" for line, detail in said_once(self.lines))
        return "\n".join(map(str.rstrip, told))


def said_once(lines: Sequence[Line]) -> Iterator[tuple[Line, str]]:
    """Each line with its detail; a cause that breaks several promises is told at the first of them."""
    first: dict[str, str] = {}
    for line in lines:
        place = first.setdefault(line.detail, line.promise) if line.outcome == "failed" else line.promise
        yield line, line.detail if place == line.promise else f"for the same reason as: {place}"
