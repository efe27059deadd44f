"""Read experiment files and `--set` overrides into one mapping.

OmegaConf parses the YAML: 1e-3 is a number, a duplicate key is an error, and `${model.width}` refers to another value.
References stay unresolved here. They are resolved for each cell (`interpolation`), after arms and overrides have
changed the values they refer to. Each text is checked by `safe_load.reject_unsafe` before OmegaConf parses it.

`extends: other.yaml` starts from another file. The sections of `apply_overrides.MERGED_SECTIONS` (task, model, train,
agent, trainer, ops, measure, prune, launcher) are merged, where a component replaces a component. All other sections
(arms, cross, tune, published, ...) replace those of the other file.
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from hqlt_lab.errors import ConfigError, ConfigIssue, did_you_mean, format_names
from hqlt_lab.experiment.apply_overrides import MERGED_SECTIONS, apply_changes
from hqlt_lab.experiment.yaml.safe_load import read_limited, reject_unsafe
from hqlt_lab.experiment.yaml.source_map import SourceMap
from hqlt_lab.experiment.yaml.syntax_errors import explain_yaml_error

logger = logging.getLogger(__name__)

MINIMAL_EXAMPLE = "`question: ...` and `task: {name: parity}`."
MAX_EXTENDS_DEPTH = 20  # nested `extends`


@dataclass(frozen=True)
class ExperimentSource:
    """An experiment file as it was read once; a command passes this on instead of reading the file again."""

    file: Path
    overrides: tuple[str, ...]  # `path=value`, from --set
    file_config: dict[str, Any]  # the file and what it extends, without the overrides
    config: dict[str, Any]  # with the overrides
    source_map: SourceMap  # the file and line of every key


def read_source(file: Path, overrides: Sequence[str] = ()) -> ExperimentSource:
    """Read an experiment file, follow `extends`, and apply `path=value` overrides to its base."""
    source_map = SourceMap()
    file_config = read_config_file(file, (), source_map)
    config = apply_set_options(file_config, overrides, source_map)
    return ExperimentSource(file, tuple(overrides), file_config, config, source_map)


def apply_set_options(
    config: dict[str, Any], overrides: Sequence[str], source_map: SourceMap | None = None
) -> dict[str, Any]:
    """Return the config with `path=value` overrides of its base; `source_map` gets their paths."""
    for override in overrides:
        path, equals, value = override.partition("=")
        if not equals or not path:
            raise ConfigError.at(
                "--set", "not_path_and_value", f"{override!r} is not path=value.", "Write for example train.lr=0.001."
            )
        allowed_sections = (*MERGED_SECTIONS, "match", "seeds", "question", "evaluate")
        with issues_in_source(f"--set {override}"):
            config = apply_changes(config, {path: parse_value(value)}, allowed_sections)
        if source_map is not None:
            source_map.add_override(path)
    if isinstance(config.get("match"), Mapping):  # YAML 1.1 reads the key `on` as true
        match = {"on" if key is True else key: value for key, value in config["match"].items()}
        return config | {"match": match}
    return config


def read_config_file(file: Path, extending_files: tuple[Path, ...], source_map: SourceMap) -> dict[str, Any]:
    """Read one file, merged into the file that it extends. `extending_files` are the files that led to it."""
    if extending_files and len(extending_files) > MAX_EXTENDS_DEPTH:
        raise ConfigError(
            ConfigIssue(
                "extends",
                "extends_too_deep",
                f"more than {MAX_EXTENDS_DEPTH} files extend one another.",
                source=str(extending_files[0]),
            )
        )
    logger.debug("Reading %s", file)
    with issues_in_source(str(file)):
        text = read_experiment_text(file, extending_files)
        if file.resolve() in extending_files:
            chain = " -> ".join(extending_file.name for extending_file in (*extending_files, file))
            raise ConfigError.at("extends", "extends_itself", f"the file extends itself: {chain}.")
        config = parse_experiment_text(text, allow_empty=bool(extending_files))
    if "extends" not in config:
        source_map.add_file(file, text)
        return config
    base_name = config.pop("extends")
    # only YAML files: error messages quote the text, and must not show the content of arbitrary files
    if not isinstance(base_name, str) or not base_name.endswith((".yaml", ".yml")):
        message = f"the name of one YAML file is needed, got {base_name!r:.60}."
        raise ConfigError(ConfigIssue("extends", "not_a_yaml_file", message, source=str(file)))
    base = read_config_file(file.parent / base_name, (*extending_files, file.resolve()), source_map)
    source_map.add_file(file, text)
    with issues_in_source(str(file)):
        return merge_into_base(base, config)


@contextmanager
def issues_in_source(source: str) -> Iterator[None]:
    """Set the source of issues that are raised inside the `with` block, unless they have one."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(
            *(issue if issue.source else replace(issue, source=source) for issue in error.issues)
        ) from error


def read_experiment_text(file: Path, extending_files: tuple[Path, ...]) -> str:
    """Return the text of an experiment file. Raise ConfigError without the file name if it cannot be read."""
    try:
        return read_limited(file)
    except OSError as error:
        extended_by = f", which {extending_files[-1].name} extends," if extending_files else ""
        raise ConfigError.at(
            "", "file_cannot_be_read", f"the file{extended_by} cannot be read ({error.strerror}).", suggest_file(file)
        ) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        hint = "Save the file with this encoding."
        raise ConfigError(ConfigIssue("", "not_utf8", "the file is not encoded in UTF-8.", hint, line=line)) from error


def parse_experiment_text(text: str, allow_empty: bool) -> dict[str, Any]:
    """Parse the text of an experiment file, which must be a mapping."""
    config = parse_yaml(text)
    if not config and not allow_empty:
        raise ConfigError.at(
            "", "empty_file", "the file is empty.", f"Begin with a question and a task: {MINIMAL_EXAMPLE}"
        )
    if not isinstance(config, dict):
        message = f"an experiment is a mapping (question: ..., task: ..., ...), got {config!r:.60}."
        raise ConfigError.at("", "not_a_mapping_of_sections", message)
    return {str(key): value for key, value in config.items()}


def parse_yaml(text: str) -> Any:
    """Parse YAML into plain values. References stay unresolved."""
    try:
        return OmegaConf.to_container(OmegaConf.create(reject_unsafe(text)), resolve=False)
    except ConfigError:
        raise
    except YAMLError as error:
        raise explain_yaml_error(error, text) from error
    except (OmegaConfBaseException, RecursionError, ValueError) as error:
        first_line, *_ = str(error).split("\n")  # the other lines are about OmegaConf internals
        raise ConfigError.at("", "yaml_syntax", f"the file is not YAML: {first_line[:500]}") from error


def suggest_file(file: Path) -> str:
    """Return a hint for a file that cannot be read: the nearest name beside it, or the files in a folder."""
    if os.path.isdir(file):  # Path.is_dir raises an error for a name that is too long
        return f"It is a folder; the files in it: {format_names(map(str, sorted(file.glob('*.yaml'))))}."
    with suppress(OSError, ValueError):  # the name may be invalid for the file system
        if not file.suffix and file.with_suffix(".yaml").is_file():
            return f"Did you mean {str(file.with_suffix('.yaml'))!r}?"
    siblings = sorted(file.parent.glob("*.y*ml")) if file.parent.is_dir() else []
    return did_you_mean(str(file), map(str, siblings))


def merge_into_base(base: dict[str, Any], extension: dict[str, Any]) -> dict[str, Any]:
    """Merge an extension into its base: MERGED_SECTIONS are merged, all other sections replaced."""
    merged = {key: value for key, value in extension.items() if key in MERGED_SECTIONS and isinstance(value, Mapping)}
    replaced = {key: value for key, value in extension.items() if key not in merged}
    return apply_changes(base, merged, MERGED_SECTIONS) | replaced


def parse_value(value: str) -> Any:
    """Parse a value from the command line as YAML."""
    try:
        return parse_yaml(f"value: {value}")["value"]
    except ConfigError as error:
        reasons = " ".join(issue.message for issue in error.issues)
        message = f"{value[:60]!r} is not a YAML value: {reasons}"
        raise ConfigError.at("", "invalid_value", message, error.issues[0].hint) from error


def dump_yaml(config: Mapping[str, Any]) -> str:
    """Return the config as YAML text."""
    return OmegaConf.to_yaml(OmegaConf.create(dict(config)))
