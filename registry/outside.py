"""Parts from outside the lab's own shelves.

Three ways in, all chosen by whoever starts the program and none from inside a YAML file:

    an entry point           [project.entry-points."hqlt_lab.components"]   in an installed package
    the working folder       [tool.hqlt_lab] with = ["my_rule.py"]          in its pyproject.toml
    the command line         hqlt --with my_rule.py ...                     or include("my_rule.py") in Python

A task file of lm-eval (YAML) is code too, as it may name functions: an experiment may ask it if it came in this way.

The command line leaves its files in the variable HQLT_WITH, so that the processes it starts know them too; and in
HQLT_WITH_DIGESTS what they were when it read them, because such a process must not run anything else.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import sys
import tomllib
from itertools import count
from pathlib import Path
from traceback import extract_tb

from hqlt_lab.errors import HqltError, RegistryError

INHERITED, DIGESTS = "HQLT_WITH", "HQLT_WITH_DIGESTS"
AGAIN = "Run the same command again: what is trained then is of the file as it is then, and the report says so."
TASK_FILES = (".yaml", ".yml")
_included: dict[Path, str] = {}
_read: dict[Path, str] = {}  # digests
_numbers = count()
_declared_in: set[Path] = set()


class OtherCode(RegistryError):
    """A part is not what whoever started this process has read."""


def include(file: str | Path) -> None:
    """Run a Python file so that the parts in it are registered; a file that was run before is left alone.

    A task file of lm-eval is noted, so that experiments may name it.
    """
    path = Path(file).resolve()
    if path in _included:
        return
    if not path.is_file():
        what = "it is a folder; name the Python files in it." if path.is_dir() else "there is no such file."
        raise RegistryError(f"--with {file}: {what}")
    if path.suffix in TASK_FILES:  # nothing to run now: an experiment may name it, and lm-eval runs what it names
        _included[path] = ""
        return
    name = f"hqlt_outside_{next(_numbers)}_{path.stem}"  # never used twice: compilers remember modules by name
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RegistryError(f"--with {file}: a Python file (.py) is needed.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _included[path] = name
    try:
        _read[path] = digest(path)
        spec.loader.exec_module(module)
    except BaseException as error:
        del _included[path], sys.modules[name]
        if isinstance(error, HqltError) or not isinstance(error, Exception):
            raise
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        at = f", line {line}" if (line := line_of(error, path)) else ""
        raise RegistryError(f"{file}: it cannot be run ({type(error).__name__}: {said}{at}).") from error


def line_of(error: Exception, file: Path) -> int | None:
    """Where in a file an error arose."""
    if isinstance(error, SyntaxError):
        return error.lineno
    return next((at.lineno for at in reversed(extract_tb(error.__traceback__)) if at.filename == str(file)), None)


def hand_on(files: list[Path]) -> None:
    """Include these files here and in every process that is started from here."""
    for file in files:
        include(file)
    os.environ[INHERITED] = os.pathsep.join(str(file) for file in included())
    os.environ[DIGESTS] = os.pathsep.join(_read.get(file, "") for file in included())


def forget(files: set[Path]) -> None:
    """These files may be included again."""
    for file in files:
        sys.modules.pop(_included.pop(file), None)
        _read.pop(file, None)


def included() -> list[Path]:
    """The files that were included so far."""
    return list(_included)


def load_declared() -> None:
    """Entry points of installed packages, then what the working folder's pyproject.toml lists; each once."""
    folder = Path.cwd()
    if not _declared_in:
        for point in installed():
            point.load()
        include_inherited()
    if folder not in _declared_in:
        _declared_in.add(folder)
        for name in _listed_in(folder / "pyproject.toml"):
            if not (folder / name).is_file():
                project = folder / "pyproject.toml"
                raise RegistryError(f"{project}: [tool.hqlt_lab] with lists {name!r}, and there is no such file.")
            include(folder / name)


def include_inherited() -> None:
    """What a command line left for us; where it said what it has read, nothing but that."""
    files = inherited()
    digests = os.environ.get(DIGESTS, "").split(os.pathsep)
    for file, there in zip(files, digests if len(digests) == len(files) else [""] * len(files), strict=True):
        try:
            include(file)
        except RegistryError as error:
            if not there:
                raise
            raise OtherCode(f"A part could be loaded when the run began, and now cannot be. {error} {AGAIN}") from error
        if there and there != _read[file]:
            raise OtherCode(f"The file {file} has changed since the run began. {AGAIN}")


def digest(file: Path) -> str:
    """Of what a file says."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def installed() -> list[importlib.metadata.EntryPoint]:
    """What installed packages bring along."""
    return list(importlib.metadata.entry_points(group="hqlt_lab.components"))


def declared() -> list[Path]:
    """The files that would be included here, without doing so."""
    return [*inherited(), *listed_here()]


def listed_here() -> list[Path]:
    """The files that the working folder's pyproject.toml lists."""
    return [Path(file) for file in _listed_in(Path("pyproject.toml"))]


def left_out(name: str) -> str:
    """A part's file that is here and that nobody included, in a sentence."""
    file = Path(f"{name}.py")
    here = name.isidentifier() and file.is_file() and file.resolve() not in _included
    return f" {file} is here, and was not included: hqlt --with {file} ..." if here else ""


def inherited() -> list[Path]:
    """What a command line left for the processes that it starts."""
    return [Path(file) for file in os.environ.get(INHERITED, "").split(os.pathsep) if file]


def _listed_in(project: Path) -> list[str]:
    if not project.is_file():
        return []
    try:
        told = tomllib.loads(project.read_text()).get("tool", {}).get("hqlt_lab", {})
    except tomllib.TOMLDecodeError as error:
        raise RegistryError(f"{project}: cannot be read ({error}).") from error
    files = told.get("with", []) if isinstance(told, dict) else told
    if unknown := [word for word in told if word != "with"] if isinstance(told, dict) else []:
        raise RegistryError(f"{project}: [tool.hqlt_lab] knows `with` alone, and has {', '.join(unknown)}.")
    if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
        raise RegistryError(f'{project}: [tool.hqlt_lab] with = ["my_rule.py"] takes a list of files, got {files!r}.')
    return files
