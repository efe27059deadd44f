"""From files and overrides to one mapping.

OmegaConf reads the YAML, so that 1e-3 is a number, a key that stands twice is an error and `${model.width}` refers to
another value. Such references stay unresolved here: they are resolved for each cell, after arms and overrides have
changed what they refer to (`references`). Before OmegaConf sees a text, `source` has looked at it.

`extends: other.yaml` starts from another file: what says how to build and train (task, model, train, trainer,
measure) is merged into it, a part replaces a part; what says what to compare (arms, cross, tune, published, ...)
replaces.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from hqlt_lab.errors import ConfigError, did_you_mean, listed
from hqlt_lab.experiment.change import MERGED, changed
from hqlt_lab.experiment.places import Places
from hqlt_lab.experiment.source import looked_at, text_of
from hqlt_lab.experiment.yaml_mistakes import NotYaml, told_plainly

SMALLEST = "`question: ...` and `task: {name: parity}`."
LONGEST_CHAIN = 20  # files that extend each other


def read(file: Path, overrides: Sequence[str] = (), places: Places | None = None) -> dict[str, Any]:
    """The experiment as one mapping, `extends` followed and `path=value` overrides applied to its base.

    `places` learns where everything is written.
    """
    places = Places() if places is None else places
    told = read_file(Path(file), (), places)
    for override in overrides:
        path, equals, value = override.partition("=")
        if not equals or not path:
            raise ConfigError(f"--set {override}: a setting is given as path=value, such as train.lr=0.001.")
        try:
            given = parsed(value)
        except ConfigError as error:
            raise ConfigError(f"--set {override}: {error}") from error
        told = changed(told, {path: given}, (*MERGED, "match", "seeds", "question", "evaluate"), f"--set {override}")
        places.add_override(path)
    if isinstance(told.get("match"), Mapping):  # in YAML 1.1 the word `on` is true
        told["match"] = {"on" if key is True else key: value for key, value in told["match"].items()}
    return told


def read_file(file: Path, seen: tuple[Path, ...], places: Places) -> dict[str, Any]:
    """One file, on top of the one it extends."""
    if seen and len(seen) > LONGEST_CHAIN:
        raise ConfigError(f"{seen[0]}: extends a file that extends another, more than {LONGEST_CHAIN} times.")
    try:
        text = text_of(file)
    except OSError as error:
        by = f"{seen[-1].name}: extends " if seen else ""
        raise ConfigError(f"{by}{file}: cannot be read ({error.strerror}).{instead_of(file)}") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(f"{file}, line {line}: is not YAML in UTF-8. Save the file with this encoding.") from error
    if file.resolve() in seen:
        raise ConfigError(f"{file}: extends itself, by way of {' -> '.join(one.name for one in seen)}.")
    try:
        told = understood(text)
    except NotYaml as error:
        raise ConfigError(f"{file}{error.place}: {error}") from error
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
    if not told and not seen:
        raise ConfigError(f"{file}: is empty. An experiment begins with its question and its task: {SMALLEST}")
    if not isinstance(told, dict):
        raise ConfigError(f"{file}: an experiment is a mapping (question: ..., task: ..., ...), not {told!r:.60}.")
    told = {str(key): value for key, value in told.items()}
    if "extends" not in told:
        places.add_file(file, text)
        return told
    other = told.pop("extends")
    if not isinstance(other, str) or not other.endswith((".yaml", ".yml")):  # what complaints quote is no other file
        raise ConfigError(f"{file}: extends: takes the name of one YAML file, got {other!r:.60}.")
    base = read_file(file.parent / other, (*seen, file.resolve()), places)
    places.add_file(file, text)
    return on_top_of(base, told, file)


def understood(text: str) -> Any:
    """YAML as plain values, references as they are written."""
    try:
        return OmegaConf.to_container(OmegaConf.create(looked_at(text)), resolve=False)
    except ConfigError:
        raise
    except YAMLError as error:
        raise told_plainly(error, text) from error
    except (OmegaConfBaseException, RecursionError, ValueError) as error:
        first, *_ = str(error).split("\n")  # the others are about OmegaConf
        raise ConfigError(f"is not YAML: {first[:500]}") from error


def instead_of(file: Path) -> str:
    """The experiment files that may be meant: the nearest one beside it, or those in it."""
    if os.path.isdir(file):  # a Path would complain of a name that is too long
        return f" It is a folder; the files in it: {listed(map(str, sorted(file.glob('*.yaml'))))}."
    with suppress(OSError, ValueError):  # a name may be anything
        if not file.suffix and file.with_suffix(".yaml").is_file():
            return f" Did you mean {str(file.with_suffix('.yaml'))!r}?"
    beside = sorted(file.parent.glob("*.y*ml")) if file.parent.is_dir() else []
    return did_you_mean(str(file), map(str, beside))


def on_top_of(base: dict[str, Any], told: dict[str, Any], file: Path) -> dict[str, Any]:
    """Sections that build are merged, all others replaced."""
    merged = {key: value for key, value in told.items() if key in MERGED and isinstance(value, Mapping)}
    rest = {key: value for key, value in told.items() if key not in merged}
    return changed(base, merged, MERGED, str(file)) | rest


def parsed(value: str) -> Any:
    """A value from the command line, read as YAML reads it."""
    try:
        return understood(f"value: {value}")["value"]
    except ConfigError as error:
        raise ConfigError(f"{value[:60]!r}: cannot be read as a value: {error}") from error


def as_yaml(told: Mapping[str, Any]) -> str:
    """The same, written down."""
    return OmegaConf.to_yaml(OmegaConf.create(dict(told)))
