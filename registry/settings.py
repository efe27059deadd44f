"""Settings that belong to no part: a dataclass whose fields have types, defaults and a sentence each."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, get_type_hints

from hqlt_lab.errors import ConfigError, did_you_mean, listed
from hqlt_lab.registry.options import fits, rewritten, spelled

Settings = TypeVar("Settings")


class SettingsError(ConfigError):
    """Values that are not possible; `alone` are the sentences that hold whatever the other settings are."""

    alone: tuple[str, ...] = ()


def refuse(alone: Sequence[str], together: Sequence[str] = ()) -> None:
    """Complain of settings that are wrong one by one, or only with the others as they are, if there are any."""
    if alone or together:
        error = SettingsError("\n".join([*alone, *together]))
        error.alone = tuple(alone)
        raise error


def settings_from(maker: type[Settings], given: Mapping[str, Any]) -> Settings:
    """The dataclass from a mapping; unknown words, values of the wrong type and impossible ones are told together."""
    known = hints(maker)  # type: ignore[arg-type]  # a class has a hash
    wrong = [
        f"{word}: there is no such setting.{did_you_mean(word, known)} Settings: {listed(known)}."
        for word in given
        if word not in known
    ]
    right = {word: value for word, value in given.items() if word in known and fits(value, known[word])}
    wrong += [
        f"{word}: {spelled(known[word])} is needed, got {value!r}.{rewritten(value, known[word])}"
        for word, value in given.items()
        if word in known and word not in right
    ]
    if wrong:
        raise ConfigError("\n".join([*wrong, *impossible(maker, right)]))
    return maker(**given)


def impossible(maker: Callable[..., Any], right: Mapping[str, Any]) -> Sequence[str]:
    """What is wrong with these settings, whatever those are that were left out."""
    try:
        maker(**right)
    except SettingsError as error:
        return error.alone
    except ConfigError as error:
        return [str(error)]
    except TypeError:  # one is missing that has no default
        return []
    return []


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
