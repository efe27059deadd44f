"""Source map of an experiment file: the file and line of every key, so that error messages can name them.

    model.update_rule.max_beta -> question.yaml, line 7

A key inherited from an extended file keeps its location there. A value of `--set` has no file.

The location of an issue is that of its path, or else of the nearest parent that is written in a file. For an issue of
an arm, the path, and a component that it belongs to, is looked up in the axes and in the arm before the base:

    model.timing.window in arm b        tune.model.timing.window, cross.model.timing.window,
                                        arms.b.model.timing.window, model.timing.window,
                                        tune.model.timing, ..., arms.b.model.timing, model.timing, model
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import yaml

from hqlt_lab.errors import ConfigIssue
from hqlt_lab.experiment.apply_overrides import COMPONENT_PATHS, MERGED_SECTIONS
from hqlt_lab.experiment.yaml.safe_load import YamlLoader

if TYPE_CHECKING:
    from hqlt_lab.experiment.load_experiment import Arm


MAX_PATH_LENGTH, MAX_PATH_KEYS = 300, 20  # characters and keys of a path; no setting has more


class SourceLocation(NamedTuple):
    """A line of a file, or a `--set` option of the command line (without line)."""

    source: str
    line: int | None = None


class SourceMap:
    """Locations of all paths that are written in a file or set on the command line."""

    def __init__(self) -> None:
        self.locations: dict[str, SourceLocation] = {}

    def add_file(self, file: Path, text: str) -> None:
        """Add the keys of a file, after the file that it extends. Drop inherited keys below sections it replaces."""
        added = {path: SourceLocation(str(file), line) for path, line in find_key_lines(text).items()}
        replaced = {path for path in added if path in COMPONENT_PATHS or path.partition(".")[0] not in MERGED_SECTIONS}
        inherited = {
            path: location for path, location in self.locations.items() if replaced.isdisjoint(parent_paths(path))
        }
        self.locations = inherited | added

    def add_override(self, path: str) -> None:
        """Add a path set with `--set`. Setting the name of a component also sets the location of the component."""
        for overridden in {path, path.removesuffix(".name")}:
            self.locations[overridden] = SourceLocation(f"--set {path}")

    def locate(self, issue: ConfigIssue, arm: "Arm | None" = None) -> ConfigIssue:
        """Return the issue with the source and line where its cause is written, in this arm or in the base."""
        paths = (path for path in candidate_paths(issue, arm) if path in self.locations)
        location = self.locations.get(next(paths, ""))
        return issue if location is None else replace(issue, source=location.source, line=location.line)


def parent_paths(path: str) -> Iterator[str]:
    """Yield the parents of a path: model.mixer[1], model.mixer and model for model.mixer[1].name."""
    while (end := max(path.rfind("."), path.rfind("["))) > 0:
        path = path[:end]
        yield path


def find_key_lines(text: str) -> dict[str, int]:
    """Return the line of every path in a YAML text. A key with dots, as `model.mixer`, also locates its parents."""
    lines: dict[str, int] = {}
    for path, line in iter_keys(yaml.compose(text, Loader=YamlLoader), "", set()):
        lines[path] = line
        for parent in parent_paths(path):
            lines.setdefault(parent, line)
    return lines


def iter_keys(node: yaml.Node | None, prefix: str, visited: set[int]) -> Iterator[tuple[str, int]]:
    """Yield every path below a node and its line. A node repeated by anchors is visited once."""
    if id(node) in visited:
        return
    visited.add(id(node))
    for path, line, inner in iter_children(node, prefix):
        if len(path) <= MAX_PATH_LENGTH and path.count(".") < MAX_PATH_KEYS:
            yield path, line
            yield from iter_keys(inner, path, visited)


def iter_children(node: yaml.Node | None, prefix: str) -> Iterator[tuple[str, int, yaml.Node]]:
    """Yield path, line and value node of each entry of a mapping or list."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield f"{prefix}.{key.value}".lstrip("."), key.start_mark.line + 1, value
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield f"{prefix}[{number}]", value.start_mark.line + 1, value


def candidate_paths(issue: ConfigIssue, arm: "Arm | None" = None) -> Iterator[str]:
    """Yield the paths at which the cause of an issue may be written, the most specific first."""
    for path in (issue.path, *issue.other_paths):
        components = [parent for parent in parent_paths(path) if is_inside_component(parent)]
        # the name of a component that does not exist may have a line of its own
        names = [f"{path}.name"] if issue.code == "unknown_component" else []
        for candidate in (*names, path, *components):
            for prefix in override_prefixes(arm):
                if prefix or not is_replaced(candidate, arm):
                    yield f"{prefix}{candidate}"
        yield from parent_paths(path)


def is_inside_component(path: str) -> bool:
    """Return whether a path is that of a component or below it."""
    return any(candidate in COMPONENT_PATHS for candidate in (path, *parent_paths(path)))


def is_replaced(path: str, arm: "Arm | None") -> bool:
    """Return whether the arm replaces the component of the base to which the path belongs."""
    components = [candidate for candidate in (path, *parent_paths(path)) if candidate in COMPONENT_PATHS]
    return arm is not None and any(component in arm.changes or component in arm.levels for component in components)


def override_prefixes(arm: "Arm | None") -> Iterator[str]:
    """Yield the prefixes of sections that can override the base in an arm, the strongest first."""
    if arm is not None:
        yield "tune."
        yield from ("cross.", "one_at_a_time.") if arm.levels else ()
        yield f"arms.{arm.name}."
    yield ""
