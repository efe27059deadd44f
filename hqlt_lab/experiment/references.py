"""What `${train.steps}` stands for: another value of the same experiment, by its whole path.

    lr_horizon: ${train.steps}          the value itself, with its type
    data: data/${task.name}             its words, inside of others

A value that is referred to may refer on, but not back, and in the end there may be so much and no more: ten values
that each name the one before ten times would be ten billion.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.source import MOST, REFERENCE

LONGEST_WAY = 20  # of values that refer to each other
LETTERS = 100_000  # that all values with words from others may have


def resolved(told: Mapping[str, Any]) -> dict[str, Any]:
    """With every reference replaced by what it refers to."""
    return Resolution(told).of(dict(told), "", ()) if refers(told) else dict(told)


def resolve_each(told: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Those sections in which every reference refers to something, and a sentence for each that does not."""
    made: dict[str, Any] = {}
    wrong: list[str] = []
    for section, value in told.items():
        dead = list(dead_ends(Resolution(told), value, section))
        wrong += dead
        if not dead:
            made[section] = Resolution(told).of(value, section, ())
    return made, wrong


def dead_ends(resolution: "Resolution", section: Any, at: str) -> Iterator[str]:
    """A sentence for each value of a section whose references lead nowhere."""
    values = section.items() if isinstance(section, Mapping) else [("", section)]
    for key, value in values:
        try:
            resolution.of(value, f"{at}.{key}".rstrip("."), ())
        except ConfigError as error:
            yield str(error)
            if resolution.is_full:
                return


def refers(value: Any) -> bool:
    """Whether there is anything to be replaced."""
    if isinstance(value, Mapping):
        return any(refers(inner) for inner in value.values())
    if isinstance(value, list):
        return any(refers(inner) for inner in value)
    return isinstance(value, str) and "${" in value


class Resolution:
    """One experiment on its way to plain values."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self.told, self.values, self.letters = told, 0, 0

    @property
    def is_full(self) -> bool:
        """Whether there is more of it than may be."""
        return self.values > MOST or self.letters > LETTERS

    def of(self, value: Any, at: str, way: tuple[str, ...]) -> Any:
        """The value at this place, reached by way of these references."""
        self.values += 1
        if self.values > MOST:
            raise ConfigError(f"{at}: with all that is referred to, there are more than {MOST:,} values.")
        if isinstance(value, Mapping):
            return {str(key): self.of(inner, f"{at}.{key}".lstrip("."), way) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.of(inner, f"{at}[{number}]", way) for number, inner in enumerate(value)]
        return self.text(value, at, way) if isinstance(value, str) and "${" in value else value

    def text(self, value: str, at: str, way: tuple[str, ...]) -> Any:
        """A text that refers: to one value and nothing else, or to words."""
        if REFERENCE.fullmatch(value):
            return self.target(value[2:-1], at, way)
        words = REFERENCE.sub(lambda found: str(self.target(found[0][2:-1], at, way)), value)
        self.letters += len(words)
        if self.letters > LETTERS:
            raise ConfigError(f"{at}: with all that is referred to, there are more than {LETTERS:,} letters.")
        return words

    def target(self, path: str, at: str, way: tuple[str, ...]) -> Any:
        """What stands at a path, resolved itself."""
        if path in way:
            raise ConfigError(f"{at}: ${{{path}}} refers to itself, by way of {' -> '.join(way)}.")
        if len(way) > LONGEST_WAY:
            raise ConfigError(f"{at}: ${{{path}}} refers to what refers on, more than {LONGEST_WAY} times.")
        found: Any = self.told
        for word in path.split("."):
            if not isinstance(found, Mapping) or word not in found:
                raise ConfigError(f"{at}: ${{{path}}} refers to nothing; there is no {path!r}.")
            found = found[word]
        return self.of(found, at, (*way, path))
