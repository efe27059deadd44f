"""Apply changes to an experiment's base by path: those of arms, axes, tuned values and --set.

model.mixer: sum                    replace a component
model.timing: {name: ..., ...}      replace a component, with options
model.timing.name: delayed_stream   replace a component and keep the options
model.timing.window: 16             set one option of the existing component
train: {steps: 10, lr: 0.1}         set several settings of a section
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from hqlt_lab.errors import ConfigError, ConfigIssue, did_you_mean, format_names, join_sentences
from hqlt_lab.model.config import COMPONENT_KINDS, ModelConfig
from hqlt_lab.model.layer_pattern import format_pattern, is_pattern
from hqlt_lab.registry.settings_parsing import raise_if_invalid

# `extends` merges these sections with those of the extended file, and replaces all other sections
MERGED_SECTIONS = ("task", "model", "train", "agent", "trainer", "ops", "measure", "prune", "launcher")
VARIABLE_SECTIONS = ("task", "model", "train", "agent", "trainer", "ops")  # arms and axes may change these
MAX_PATH_DEPTH = 10  # keys of a path before the last
REPLACED_SECTIONS = ("match",)  # replaced as a whole, like a component
COMPONENT_PATHS = {"task", "launcher", *(f"model.{kind}" for kind in COMPONENT_KINDS)}


def apply_changes(
    base: Mapping[str, Any], changes: Mapping[str, Any], allowed_sections: tuple[str, ...]
) -> dict[str, Any]:
    """Return a copy of the base with these changes. Raise if one is outside of `allowed_sections` or impossible."""
    changed, issues = apply_each_change(base, changes, allowed_sections)
    raise_if_invalid(issues)
    return changed


def apply_each_change(
    base: Mapping[str, Any], changes: Mapping[str, Any], allowed_sections: tuple[str, ...]
) -> tuple[dict[str, Any], list[ConfigIssue]]:
    """Return a copy of the base with all valid changes, and one issue for each invalid one."""
    changed, issues = deepcopy(dict(base)), list[ConfigIssue]()
    for path, value in changes.items():
        section = path.split(".")[0]
        if section not in allowed_sections:
            suggestion = (
                f"Did you mean 'model.{path}'?"
                if hasattr(ModelConfig, section)
                else did_you_mean(section, allowed_sections)
            )
            issues.append(
                ConfigIssue(
                    path,
                    "path_cannot_be_set",
                    f"there is no section {section!r} that can be set here.",
                    join_sentences(suggestion, f"Sections: {format_names(allowed_sections)}."),
                )
            )
            continue
        try:
            set_path(changed, path, value)
        except ConfigError as error:
            issues += error.issues
    return changed, issues


def set_path(config: dict[str, Any], path: str, value: Any) -> None:
    """Set the value at one path, in place."""
    is_section = "." not in path and path not in {*COMPONENT_PATHS, *REPLACED_SECTIONS} and isinstance(value, Mapping)
    if is_section:
        for key, inner in value.items():
            set_path(config, f"{path}.{key}", inner)
        return
    *parents, last = path.split(".")
    if len(parents) > MAX_PATH_DEPTH:
        start = ".".join(parents[:MAX_PATH_DEPTH])[:60]
        raise ConfigError.at(start, "path_too_deep", f"no setting is more than {MAX_PATH_DEPTH} levels deep.")
    node = config
    for depth, key in enumerate(parents, 1):
        parent = ".".join(parents[:depth])
        if parent in COMPONENT_PATHS and isinstance(node.get(key, getattr(ModelConfig, key, None)), str):
            # expand a bare component name to a mapping, so that an option can be set in it
            node[key] = {"name": node.get(key, getattr(ModelConfig, key, None))}
        child = node.setdefault(key, {})
        if not isinstance(child, dict):
            raise ConfigError.at(
                path,
                "parent_has_no_settings",
                f"{parent} is {child!r}, which has no {last!r}.",
                f"Set {parent} as a whole.",
            )
        node = child
    node[last] = deepcopy(value)


def format_change(path: str, value: Any, paths: Mapping[str, Any]) -> str:
    """Return a change as text, such as mixer=sum or update_rule=delta(max_beta=2)."""
    return f"{short_path(path, paths)}={format_value(value)}"


def short_path(path: str, paths: Mapping[str, Any]) -> str:
    """Return the last key of a path (for a component's name, its kind), or the whole path if that is ambiguous."""
    return path if sum(last_key(other) == last_key(path) for other in paths) > 1 else last_key(path)


def last_key(path: str) -> str:
    """Return the last key of a path: window of model.timing.window, timing of model.timing.name."""
    return path.removesuffix(".name").rsplit(".", 1)[-1]


def format_value(value: Any) -> str:
    """Return a value as text; a component as name(option=value)."""
    if is_pattern(value):
        return format_pattern(value)
    if isinstance(value, Mapping):
        options = ",".join(f"{key}={inner}" for key, inner in value.items() if key != "name")
        return f"{value.get('name', '?')}({options})" if options else str(value.get("name", "?"))
    return "null" if value is None else str(value)
