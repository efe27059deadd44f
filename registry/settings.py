"""Settings that belong to no part: a dataclass whose fields have types, defaults and a sentence each."""

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, get_type_hints

from hqlt_lab.errors import ConfigError, did_you_mean, listed
from hqlt_lab.registry.options import fits, spelled

Settings = TypeVar("Settings")


def settings_from(maker: type[Settings], given: Mapping[str, Any]) -> Settings:
    """The dataclass from a mapping; unknown words and values of the wrong type are told together."""
    known = hints(maker)  # type: ignore[arg-type]  # a class has a hash
    wrong = [
        f"{word}: there is no such setting.{did_you_mean(word, known)} Settings: {listed(known)}."
        for word in given
        if word not in known
    ]
    wrong += [
        f"{word}: {spelled(known[word])} is needed, got {value!r}."
        for word, value in given.items()
        if word in known and not fits(value, known[word])
    ]
    if wrong:
        raise ConfigError("\n".join(wrong))
    return maker(**given)


@cache
def hints(maker: Any) -> Mapping[str, Any]:
    """The types of its fields."""
    return get_type_hints(maker)


def too_large(settings: Any, most: Mapping[str, int]) -> list[str]:
    """A sentence for each of these settings that is larger than it may be."""
    return [
        f"{name}: at most {high:,} are possible, got {getattr(settings, name):,}."
        for name, high in most.items()
        if getattr(settings, name) is not None and getattr(settings, name) > high
    ]


def too_small(settings: Any, least: Mapping[str, float]) -> list[str]:
    """A sentence for each of these settings that is smaller than it may be."""
    return [
        f"{name}: at least {low} is needed, got {getattr(settings, name)}."
        for name, low in least.items()
        if getattr(settings, name) is not None and getattr(settings, name) < low
    ]
