"""Where lm-eval defines its tasks: found by name, without loading lm-eval, whose own index takes 13 seconds."""

import importlib.util
import re
from functools import cache
from pathlib import Path

DEFINES = re.compile(rb"^ *(?:- )?(?:task|group): *[\"']?([\w.-]+)", re.MULTILINE)
NAME = re.compile(r"[\w.-]+")


def is_path(name: str) -> bool:
    """Whether a task is meant by its file."""
    return name.endswith((".yaml", ".yml"))


def definition_of(name: str) -> Path | None:
    """The YAML file that defines a task or group of lm-eval, most often quickly."""
    folder = shelf()
    if not NAME.fullmatch(name):
        return None
    for file in [*folder.glob(f"*/{name}.yaml"), *(folder / name).glob("*.yaml")]:
        if name.encode() in DEFINES.findall(file.read_bytes()):
            return file
    return defined().get(name)


@cache
def defined() -> dict[str, Path]:
    """All of them: seconds of work, for names that stand in no obvious file."""
    found: dict[str, Path] = {}
    for file in sorted(shelf().rglob("*.yaml")):
        for name in DEFINES.findall(file.read_bytes()):
            found.setdefault(name.decode(), file)
    return found


def shelf() -> Path:
    """Where lm-eval keeps its tasks; it need not be imported to look there."""
    found = importlib.util.find_spec("lm_eval")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent / "tasks"
