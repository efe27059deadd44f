"""Build components from a name and options, as written in YAML."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from hqlt_lab.errors import (
    ConfigIssue,
    RegistryError,
    format_names,
    issues_under,
    join_path,
    join_sentences,
)
from hqlt_lab.registry.entries import canonical_name, find_factory
from hqlt_lab.registry.kinds import KINDS
from hqlt_lab.registry.options import format_type, inspect_parameters, matches_type, options, suggest_integer
from hqlt_lab.registry.settings_parsing import suggest_name

ComponentSpec = str | Mapping[str, Any]  # "delta", or {"name": "delta", "max_beta": 2}


def parse_spec(kind: str, spec: ComponentSpec, location: str | None = None) -> tuple[str, dict[str, Any]]:
    """Split a spec into name and options and check them. Raise RegistryError with one issue per mistake.

    `location` is the path of the spec; without one, the kind.
    """
    location = kind if location is None else location
    if isinstance(spec, Mapping):
        chosen_options = {str(key): value for key, value in spec.items()}
        if "name" not in chosen_options:
            raise RegistryError.at(
                location,
                "component_without_name",
                f"a component needs a name, got {dict(spec)}.",
                "Write the name, or {name: ..., option: ...}.",
            )
        name = chosen_options.pop("name")
    else:
        name, chosen_options = spec, {}
    find_factory(kind, name, location)
    if issues := find_option_issues(kind, name, chosen_options, location):
        raise RegistryError(*issues)
    return canonical_name(name), chosen_options


def find_option_issues(kind: str, name: str, chosen_options: Mapping[str, Any], location: str) -> list[ConfigIssue]:
    """Return one issue for each unknown option, wrong type and missing required option."""
    declared = options(kind, name, location)
    issues = [
        ConfigIssue(
            join_path(location, key),
            "unknown_option",
            f"{kind} {name!r} has no option {key!r}.",
            join_sentences(suggest_name(key, declared), f"Options: {format_names(declared)}."),
        )
        for key in chosen_options
        if key not in declared
    ]
    issues += [
        ConfigIssue(
            join_path(location, key),
            "option_of_wrong_type",
            f"{kind} {name!r} takes {format_type(declared[key].type)} here, got {value!r}.",
            suggest_integer(value, declared[key].type),
        )
        for key, value in chosen_options.items()
        if key in declared and not matches_type(value, declared[key].type)
    ]
    return issues + [
        ConfigIssue(
            location,
            "missing_option",
            f"{kind} {name!r} needs the option {option.name!r} ({format_type(option.type)}).",
            argument_hint(kind),
        )
        for option in declared.values()
        if option.is_required and option.name not in chosen_options
    ]


def argument_hint(kind: str) -> str:
    """Return a sentence that lists the arguments which the lab provides for this kind, or ""."""
    provided = KINDS[kind].provided
    return f"Arguments that hqlt_lab can pass to components of this kind: {format_names(provided)}." if provided else ""


def check_base_class(kind: str, name: str, factory: Callable[..., Any], location: str) -> None:
    """Raise RegistryError if a class lacks public methods of the base class of its kind. Functions are not checked."""
    base_names, base_module = KINDS[kind].base_classes, f"{KINDS[kind].package}._base"
    if not inspect.isclass(factory) or not base_names:
        return
    required_attributes = vars(getattr(importlib.import_module(base_module), base_names[-1]))
    missing = [attr for attr in required_attributes if not attr.startswith("_") and not hasattr(factory, attr)]
    if missing:
        raise RegistryError.at(
            location,
            "missing_method",
            f"{kind} {name!r} is the class {factory.__name__}, which has no {' or '.join(missing[:2])}.",
            f"Subclass {' or '.join(base_names)}: from {base_module} import {base_names[0]}",
        )


def build(kind: str, spec: ComponentSpec, location: str | None = None, **provided: Any) -> Any:
    """Build the component. Of the `provided` arguments (width, heads, ...) it gets those that its signature names.

    If they are not provided, `key_dim` and `value_dim`, the channels of a key and a value per head, are width / heads.
    """
    location = kind if location is None else location
    name, chosen_options = parse_spec(kind, spec, location)
    factory = find_factory(kind, name)
    check_base_class(kind, name, factory, location)
    if {"width", "heads"} <= set(provided):
        provided = dict.fromkeys(("key_dim", "value_dim"), provided["width"] // provided["heads"]) | provided
    parameters = inspect_parameters(factory)
    needed = [key for key in parameters if key in KINDS[kind].provided]
    if missing := [key for key in needed if key not in provided and parameters[key].is_required]:
        raise RegistryError.at(
            location,
            "argument_not_provided",
            f"{kind} {name!r} needs arguments that were not passed: {format_names(missing)}.",
        )
    with issues_under(location):  # a component reports issues by the names of its options
        return factory(**chosen_options, **{key: provided[key] for key in needed if key in provided})
