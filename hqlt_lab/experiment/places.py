"""Where a file says what it says, so that a mistake is found at once: path -> file and line.

    model.update_rule.max_beta -> question.yaml, line 7

The lines are those of the very text that was read.  What a file takes over from the one it extends keeps its place
there, and what the command line sets has none in a file.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from hqlt_lab.experiment.change import MERGED, PART_PATHS
from hqlt_lab.experiment.source import Events

LONGEST, DEEPEST = 300, 20  # letters and words of a path; no setting has more


class Place(NamedTuple):
    """A line of a file, or a word of the command line."""

    where: str
    line: int | None = None

    def seen_from(self, file: str) -> str:
        """In a message about that file."""
        if self.line is None:
            return self.where
        return f"line {self.line}" if self.where == file else f"{self.where}, line {self.line}"

    def order(self, file: str) -> tuple[int, int]:
        """In such a message: the file itself from its first line to its last, then other files, then the command."""
        return (3, 0) if self.line is None else (1 if self.where == file else 2, self.line)


class Places:
    """Of every path that is written somewhere."""

    def __init__(self) -> None:
        self.known: dict[str, Place] = {}

    def add_file(self, file: Path, text: str) -> None:
        """On top of the files that it extends: what it replaces as a whole is no longer there."""
        own = {path: Place(str(file), line) for path, line in lines_of(text).items()}
        whole = {path for path in own if path in PART_PATHS or path.partition(".")[0] not in MERGED}
        self.known = {path: place for path, place in self.known.items() if whole.isdisjoint(above(path))} | own

    def add_override(self, path: str) -> None:
        """What `--set` sets; another name is another part."""
        for one in {path, path.removesuffix(".name")}:
            self.known[one] = Place(f"--set {path}")

    def first(self, paths: Iterator[str]) -> Place | None:
        """Of the first of these paths that is written somewhere."""
        return next((self.known[path] for path in paths if path in self.known), None)


def above(path: str) -> Iterator[str]:
    """model.timing.window -> model.timing, model"""
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def lines_of(text: str) -> dict[str, int]:
    """Path -> line.  Of `model.mixer: sum` in an arm, `model` is written there as well."""
    found: dict[str, int] = {}
    for path, line in written(yaml.compose(text, Loader=Events), "", set()):
        found[path] = line
        for longer in above(path):
            found.setdefault(longer, line)
    return found


def written(node: yaml.Node | None, at: str, seen: set[int]) -> Iterator[tuple[str, int]]:
    """Every key and its line; what anchors repeat is looked at once."""
    if id(node) in seen:
        return
    seen.add(id(node))
    for path, line, inner in members(node, at):
        if len(path) <= LONGEST and path.count(".") < DEEPEST:
            yield path, line
            yield from written(inner, path, seen)


def members(node: yaml.Node | None, at: str) -> Iterator[tuple[str, int, yaml.Node]]:
    """What a mapping or a list holds: path, line and value."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield f"{at}.{key.value}".lstrip("."), key.start_mark.line + 1, value
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield f"{at}[{number}]", value.start_mark.line + 1, value
