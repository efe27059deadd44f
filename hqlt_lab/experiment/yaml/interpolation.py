"""Resolve interpolations such as `${train.steps}`: references to other values of the experiment by their full path.

    lr_horizon: ${train.steps}          the value itself, with its type
    data: data/${task.name}             the value as text, inside a string

References may be nested but not circular. The total size is limited, because ten values that each refer ten times to
the one before would expand to ten billion.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from hqlt_lab.errors import ConfigError, ConfigIssue, join_path
from hqlt_lab.experiment.yaml.safe_load import INTERPOLATION, MAX_VALUES

MAX_CHAIN_LENGTH = 20  # nested references
MAX_CHARACTERS = 100_000  # total length of all strings that contain references


def resolve_interpolations(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config with every reference replaced by its value."""
    return (
        InterpolationResolver(config).resolve_value(dict(config), "", ()) if has_interpolation(config) else dict(config)
    )


def resolve_each_section(config: Mapping[str, Any]) -> tuple[dict[str, Any], list[ConfigIssue]]:
    """Return the sections whose references can all be resolved, and one issue for each value where that fails."""
    resolved: dict[str, Any] = {}
    issues: list[ConfigIssue] = []
    for section, value in config.items():
        section_issues = list(find_dangling_references(InterpolationResolver(config), value, section))
        issues += section_issues
        if not section_issues:
            resolved[section] = InterpolationResolver(config).resolve_value(value, section, ())
    return resolved, issues


def find_dangling_references(resolver: "InterpolationResolver", section: Any, location: str) -> Iterator[ConfigIssue]:
    """Yield one issue for each value of a section whose references cannot be resolved."""
    values = section.items() if isinstance(section, Mapping) else [("", section)]
    for key, value in values:
        try:
            resolver.resolve_value(value, join_path(location, str(key)), ())
        except ConfigError as error:
            yield from error.issues
            if resolver.is_over_limit:
                return


def has_interpolation(value: Any) -> bool:
    """Return whether a value contains a reference, at any depth."""
    if isinstance(value, Mapping):
        return any(has_interpolation(inner) for inner in value.values())
    if isinstance(value, list):
        return any(has_interpolation(inner) for inner in value)
    return isinstance(value, str) and "${" in value


class InterpolationResolver:
    """Resolves the references of one config, and counts values and characters against the limits."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config, self.num_values, self.num_characters = config, 0, 0

    @property
    def is_over_limit(self) -> bool:
        """Whether the resolved values exceed a limit."""
        return self.num_values > MAX_VALUES or self.num_characters > MAX_CHARACTERS

    def resolve_value(self, value: Any, location: str, chain: tuple[str, ...]) -> Any:
        """Return a value with its references resolved. `chain` are the references that led to it."""
        self.num_values += 1
        if self.num_values > MAX_VALUES:
            raise ConfigError.at(
                location,
                "references_too_large",
                f"with all references resolved, there are more than {MAX_VALUES:,} values.",
            )
        if isinstance(value, Mapping):
            return {
                str(key): self.resolve_value(inner, join_path(location, str(key)), chain)
                for key, inner in value.items()
            }
        if isinstance(value, list):
            return [self.resolve_value(inner, f"{location}[{number}]", chain) for number, inner in enumerate(value)]
        return self.resolve_string(value, location, chain) if isinstance(value, str) and "${" in value else value

    def resolve_string(self, value: str, location: str, chain: tuple[str, ...]) -> Any:
        """Return the value that a string refers to, or the string with the values inserted as text."""
        if INTERPOLATION.fullmatch(value):
            return self.resolve_path(value[2:-1], location, chain)
        text = INTERPOLATION.sub(lambda match: str(self.resolve_path(match[0][2:-1], location, chain)), value)
        self.num_characters += len(text)
        if self.num_characters > MAX_CHARACTERS:
            raise ConfigError.at(
                location,
                "references_too_large",
                f"with all references resolved, there are more than {MAX_CHARACTERS:,} characters.",
            )
        return text

    def resolve_path(self, path: str, location: str, chain: tuple[str, ...]) -> Any:
        """Return the resolved value at a path."""
        if path in chain:
            raise ConfigError.at(
                location, "circular_reference", f"${{{path}}} refers to itself: {' -> '.join((*chain, path))}."
            )
        if len(chain) > MAX_CHAIN_LENGTH:
            raise ConfigError.at(
                location,
                "reference_chain_too_long",
                f"${{{path}}} is at the end of a chain of more than {MAX_CHAIN_LENGTH} references.",
            )
        value: Any = self.config
        for key in path.split("."):
            if not isinstance(value, Mapping) or key not in value:
                raise ConfigError.at(
                    location, "dangling_reference", f"${{{path}}} refers to a setting that does not exist."
                )
            value = value[key]
        return self.resolve_value(value, location, (*chain, path))
