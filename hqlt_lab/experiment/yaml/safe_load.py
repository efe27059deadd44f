"""Read the text of an experiment file and reject unsafe YAML before it is parsed into objects.

Experiment files may come from untrusted sources. Reading one must not run code or take long. So only regular files of
limited size are read, and the YAML events are checked first: number of values, depth, length, tags and characters.
OmegaConf limits the expansion of anchors.
"""

import re
import stat
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from hqlt_lab.errors import ConfigError, ConfigIssue

MAX_FILE_BYTES = 1_000_000
MAX_VALUES, MAX_DEPTH = 5000, 30
MAX_VALUE_LENGTH = 4000  # characters of one value; Python cannot parse integers with more digits
BIDI_CONTROLS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # can make a line look like another one
INTERPOLATION = re.compile(r"\$\{\w+(?:\.\w+)*\}")
YamlLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_limited(file: Path) -> str:
    """Return the text of a file. Raise ConfigError if it is too large, or a pipe or device, which may never end.

    The caller adds the name of the file to the issue.
    """
    if "\0" in str(file):
        raise ConfigError.at("", "invalid_file_name", "this cannot be the name of a file.")
    mode = file.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ConfigError.at("", "not_a_regular_file", "this is not a regular file.", "Save the experiment in one.")
    with file.open("rb") as stream:
        content = stream.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError.at("", "file_too_large", f"the file is larger than {MAX_FILE_BYTES:,} bytes.")
    return content.decode("utf-8-sig")


def reject_unsafe(text: str) -> str:
    """Return the text if it is plain YAML within the limits. Raise ConfigError without the file name otherwise."""
    depth = values = 0
    for event in yaml.parse(text, Loader=YamlLoader):
        values += isinstance(event, yaml.NodeEvent)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if values > MAX_VALUES:
            raise ConfigError.at("", "too_many_values", f"there are more than {MAX_VALUES:,} values.")
        if depth > MAX_DEPTH:
            raise ConfigError.at("", "nested_too_deeply", f"the values are nested more than {MAX_DEPTH} levels deep.")
        issue = find_tag_issue(event) or (
            find_scalar_issue(event.value) if isinstance(event, yaml.ScalarEvent) else None
        )
        if issue is not None:
            line = event.start_mark.line + 1 if event.start_mark else None
            raise ConfigError(replace(issue, line=line))
    return text


def find_tag_issue(event: yaml.Event) -> ConfigIssue | None:
    """Return an issue if the event has a tag, or None."""
    tag = getattr(event, "tag", None)
    return (
        ConfigIssue("", "yaml_tag", f"the tag {tag!r} is not allowed.", "Use plain values only.")
        if tag is not None
        else None
    )


def find_scalar_issue(value: str) -> ConfigIssue | None:
    """Return an issue if a key or value is too long, has control characters, or a `${...}` that is not a path."""
    if len(value) > MAX_VALUE_LENGTH:
        return ConfigIssue(
            "",
            "value_too_long",
            f"a value has {len(value):,} characters.",
            f"At most {MAX_VALUE_LENGTH:,} are allowed.",
        )
    for character in value:
        is_control = unicodedata.category(character) in ("Cc", "Cs") and character not in "\n\t"
        if character in BIDI_CONTROLS or is_control:
            return ConfigIssue(
                "",
                "control_character",
                f"the control character {character!r} is not allowed.",
                "Use printable characters.",
            )
    if "${" in INTERPOLATION.sub("", value):
        return ConfigIssue(
            "",
            "invalid_reference",
            f"{value[:60]!r} is not a reference.",
            "Write the whole path of another value between ${ and }, such as ${train.steps}. "
            "Expressions and environment variables are not supported.",
        )
    return None
