"""Named changes to an experiment's base: what an arm, an axis or a tuned value does.

model.mixer: sum                    a part replaces a part
model.timing: {name: ..., ...}      so does a part with options
model.timing.name: delayed_stream   another part, the options stay
model.timing.window: 16             one option of the part that is there
train: {steps: 10, lr: 0.1}         several settings of a section
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from hqlt_lab.errors import ConfigError, did_you_mean, listed
from hqlt_lab.model.config import PARTS, ModelConfig
from hqlt_lab.registry.settings import refuse

MERGED = ("task", "model", "train", "agent", "trainer", "ops", "measure", "prune", "launcher")
VARIED = ("task", "model", "train", "agent", "trainer", "ops")  # what arms and axes may change
AXES = "cross, tune"  # where complaints about an axis say that it is
DEEPEST = 10  # words of a path before the last
WHOLE = ("match",)  # is replaced, like a part
PART_PATHS = {"task", "launcher", *(f"model.{kind}" for kind in PARTS)}


def changed(base: Mapping[str, Any], changes: Mapping[str, Any], may: tuple[str, ...], at: str) -> dict[str, Any]:
    """A copy of the base with these changes; `may` names the sections that can be changed."""
    told, wrong = change_each(base, changes, may, at)
    refuse(wrong)
    return told


def change_each(
    base: Mapping[str, Any], changes: Mapping[str, Any], may: tuple[str, ...], at: str
) -> tuple[dict[str, Any], list[str]]:
    """The same, without those that cannot be made, and a sentence for each of these."""
    told, wrong = deepcopy(dict(base)), []
    for path, value in changes.items():
        section = path.split(".")[0]
        if section not in may:
            whole = f" Did you mean 'model.{path}'?" if hasattr(ModelConfig, section) else did_you_mean(section, may)
            wrong.append(f"{at}: {path!r} cannot be set.{whole} Sections: {listed(may)}.")
            continue
        try:
            put(told, path, value, at)
        except ConfigError as error:
            wrong.append(str(error))
    return told, wrong


def put(told: dict[str, Any], path: str, value: Any, at: str) -> None:
    """Set one path in place."""
    whole_section = "." not in path and path not in {*PART_PATHS, *WHOLE} and isinstance(value, Mapping)
    if whole_section:
        for key, inner in value.items():
            put(told, f"{path}.{key}", inner, at)
        return
    *parents, last = path.split(".")
    if len(parents) > DEEPEST:
        raise ConfigError(f"{at}: {path[:60]!r} goes deeper than any setting.")
    place = told
    for depth, word in enumerate(parents, 1):
        here = ".".join(parents[:depth])
        if here in PART_PATHS and isinstance(place.get(word, getattr(ModelConfig, word, None)), str):
            place[word] = {"name": place.get(word, getattr(ModelConfig, word, None))}  # a bare name gains options
        below = place.setdefault(word, {})
        if not isinstance(below, dict):
            raise ConfigError(f"{at}: {path}: {here} is {below!r}, which has no {last!r}. Set {here} as a whole.")
        place = below
    place[last] = deepcopy(value)


def label(path: str, value: Any, paths: Mapping[str, Any]) -> str:
    """A changed value for people: mixer=sum, update_rule=delta(max_beta=2)."""
    return f"{short(path, paths)}={spelled_value(value)}"


def short(path: str, paths: Mapping[str, Any]) -> str:
    """The last word of a path where that is enough to tell it from the others; of a part's name, the part."""
    return path if sum(last_word(other) == last_word(path) for other in paths) > 1 else last_word(path)


def last_word(path: str) -> str:
    """model.timing.window -> window, model.timing.name -> timing"""
    return path.removesuffix(".name").rsplit(".", 1)[-1]


def spelled_value(value: Any) -> str:
    """A value in a word: a part is its name and options."""
    if isinstance(value, Mapping):
        options = ",".join(f"{key}={inner}" for key, inner in value.items() if key != "name")
        return f"{value.get('name', '?')}({options})" if options else str(value.get("name", "?"))
    return "null" if value is None else str(value)
