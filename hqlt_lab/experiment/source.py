"""The text of an experiment file, looked at before anything is made of it.

A file may come from anybody, and reading it must neither run anything nor take long.  So it is a plain file of some
size at most, and the events of its YAML are counted before they become objects: how many, how deep, how long, which
tags and letters.  What comes through is small and plain, and OmegaConf bounds what anchors make of it.
"""

import re
import stat
import unicodedata
from pathlib import Path
from typing import Any

import yaml

from hqlt_lab.errors import ConfigError

LARGEST = 1_000_000  # bytes of a file
MOST, DEEPEST, LONGEST = 5000, 30, 4000  # values, levels, and letters of one value; more digits are no int to Python
TURNING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # letters that let a line read as another one
REFERENCE = re.compile(r"\$\{\w+(?:\.\w+)*\}")
Events: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def text_of(file: Path) -> str:
    """What stands in a file; a pipe or a device, which may never end, is none."""
    if "\0" in str(file):
        raise ConfigError(f"{str(file)!r}: no file is called so.")
    there = file.stat()
    if not stat.S_ISREG(there.st_mode) and not stat.S_ISDIR(there.st_mode):
        raise ConfigError(f"{file}: is no plain file. Save the experiment in one.")
    with file.open("rb") as opened:
        content = opened.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ConfigError(f"{file}: is larger than {LARGEST:,} bytes, which no experiment is.")
    return content.decode("utf-8-sig")


def looked_at(text: str) -> str:
    """The same text, if it is nothing but plain YAML; else a sentence, without the place where it was found."""
    depth = values = 0
    for event in yaml.parse(text, Loader=Events):
        values += isinstance(event, yaml.NodeEvent)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if values > MOST:
            raise ConfigError(f"holds more than {MOST:,} values, which no experiment does.")
        if depth > DEEPEST:
            raise ConfigError(f"goes deeper than {DEEPEST} levels, which no experiment does.")
        if getattr(event, "tag", None) is not None:
            raise ConfigError(f"has the tag {event.tag!r}{place(event)}. Plain values are all that is read.")
        if isinstance(event, yaml.ScalarEvent):
            check_value(event.value, place(event))
    return text


def place(event: yaml.Event) -> str:
    """Where in the file."""
    return f" in line {event.start_mark.line + 1}" if event.start_mark else ""


def check_value(value: str, where: str) -> None:
    """One key or value: not endless, nothing that moves a terminal's cursor, and of `${...}` only names."""
    if len(value) > LONGEST:
        raise ConfigError(f"has a value of {len(value):,} letters{where}; {LONGEST:,} are the most.")
    for letter in value:
        if letter in TURNING or (unicodedata.category(letter) in ("Cc", "Cs") and letter not in "\n\t"):
            raise ConfigError(f"holds the control character {letter!r}{where}. Use letters that can be seen.")
    if "${" in REFERENCE.sub("", value):
        raise ConfigError(
            f"has {value[:60]!r}{where}: only the whole path of another value stands between ${{ and }}, such as "
            "${train.steps}. Nothing is computed there or taken from the environment."
        )
