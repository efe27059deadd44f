"""Load components that are not built in.

There are three ways. All are chosen by the user of the program; an experiment file cannot load code:

    an entry point           [project.entry-points."hqlt_lab.components"]   in an installed package
    the working directory    [tool.hqlt_lab] with = ["my_rule.py"]          in its pyproject.toml
    the command line         hqlt --with my_rule.py ...                     or load_components("my_rule.py") in Python

A task file of lm-eval (YAML) can call Python functions, so it counts as code: an experiment may use only task files
that were loaded in this way.

A component of a notebook cell is written to a file (`notebook_source.py`), which subprocesses load in the same way.

The command line passes its files to subprocesses in the variable HQLT_WITH, and their hashes in HQLT_WITH_DIGESTS. A
subprocess refuses to load a file that has changed since then.
"""

import importlib.metadata
import importlib.util
import os
import sys
import tomllib
from itertools import count
from pathlib import Path
from traceback import extract_tb

from hqlt_lab.errors import ConfigIssue, HqltError, RegistryError
from hqlt_lab.hashing import hash_file

FILES_VARIABLE, DIGESTS_VARIABLE = "HQLT_WITH", "HQLT_WITH_DIGESTS"
RERUN_HINT = "Run the same command again to train with the changed file; the report notes the change."
TASK_FILE_SUFFIXES = (".yaml", ".yml")
_module_names: dict[Path, str] = {}  # loaded file -> its name in sys.modules; "" for a file that was not run here
_generated_files: set[Path] = set()  # files of components that were defined in this notebook
_file_digests: dict[Path, str] = {}
_module_numbers = count()
_initialized_folders: set[Path] = set()


class CodeChanged(RegistryError):
    """The file of a component has changed since the parent process loaded it."""


def load_components(file: str | Path) -> None:
    """Run a Python file to register its components. A file that is already loaded is not run again.

    A task file of lm-eval (YAML) is not run, only recorded as allowed in experiments.
    """
    path = Path(file).resolve()
    if path in _module_names:
        return
    if not path.is_file():
        if path.is_dir():
            raise RegistryError.at("--with", "file_is_folder", f"{file} is a folder.", "Name the Python files in it.")
        raise RegistryError.at("--with", "file_not_found", f"there is no file {file}.")
    if path.suffix in TASK_FILE_SUFFIXES:
        _module_names[path] = ""
        return
    # the number makes the name unique: torch.compile caches by module name
    name = f"hqlt_outside_{next(_module_numbers)}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RegistryError.at("--with", "not_a_python_file", f"{file} is not a Python file (.py).")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _module_names[path] = name
    try:
        _file_digests[path] = hash_file(path, 16)
        spec.loader.exec_module(module)
    except BaseException as error:
        del _module_names[path], sys.modules[name]
        if isinstance(error, HqltError) or not isinstance(error, Exception):
            raise
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        raise RegistryError(
            ConfigIssue(
                "--with",
                "file_cannot_be_run",
                f"the file raised {type(error).__name__}: {message}".rstrip(".: ") + ".",
                source=str(file),
                line=find_error_line(error, path),
            )
        ) from error


def record_generated_files(files: list[Path]) -> None:
    """Record files of this notebook's components as loaded, without running them, in place of those recorded before."""
    unload_files(_generated_files & set(_module_names))
    _generated_files.clear()
    for file in files:
        path = file.resolve()
        if path not in _module_names:  # the notebook may have loaded the file of an earlier run
            _generated_files.add(path)
            _module_names[path], _file_digests[path] = "", hash_file(path)


def find_error_line(error: Exception, file: Path) -> int | None:
    """Return the innermost line of the file in the traceback of an error."""
    if isinstance(error, SyntaxError):
        return error.lineno
    frames = reversed(extract_tb(error.__traceback__))
    return next((frame.lineno for frame in frames if frame.filename == str(file)), None)


def export_to_subprocesses(files: list[Path]) -> None:
    """Load these files in this process, and set the variables by which its subprocesses load them too."""
    for file in files:
        load_components(file)
    os.environ[FILES_VARIABLE] = os.pathsep.join(str(file) for file in list_loaded_files())
    os.environ[DIGESTS_VARIABLE] = os.pathsep.join(_file_digests.get(file, "") for file in list_loaded_files())


def unload_files(files: set[Path]) -> None:
    """Remove these files from the list of loaded files, so that they can be loaded again."""
    for file in files:
        sys.modules.pop(_module_names.pop(file), None)
        _file_digests.pop(file, None)


def list_loaded_files() -> list[Path]:
    """Return the files loaded so far."""
    return list(_module_names)


def load_declared_components() -> None:
    """Load, once, the entry points of installed packages, the files of HQLT_WITH and those listed in pyproject.toml."""
    folder = Path.cwd()
    if not _initialized_folders:
        for point in list_entry_points():
            point.load()
        load_inherited_files()
    if folder not in _initialized_folders:
        _initialized_folders.add(folder)
        for name in _read_project_files(folder / "pyproject.toml"):
            if not (folder / name).is_file():
                raise project_error(
                    folder / "pyproject.toml",
                    "tool.hqlt_lab.with",
                    code="listed_file_not_found",
                    message=f"there is no file {name!r}.",
                )
            load_components(folder / name)


def load_inherited_files() -> None:
    """Load the files of HQLT_WITH. Raise CodeChanged if one differs from its hash in HQLT_WITH_DIGESTS."""
    files = list_inherited_files()
    digests = os.environ.get(DIGESTS_VARIABLE, "").split(os.pathsep)
    for file, expected in zip(files, digests if len(digests) == len(files) else [""] * len(files), strict=True):
        try:
            load_components(file)
        except RegistryError as error:
            if not expected:
                raise
            raise CodeChanged.at(
                "",
                "code_unavailable",
                f"{file} was loaded when the run started, but can no longer be loaded. {error}",
                RERUN_HINT,
            ) from error
        if expected and expected != _file_digests[file]:
            raise CodeChanged.at("", "code_changed", f"{file} has changed since the run started.", RERUN_HINT)


def list_entry_points() -> list[importlib.metadata.EntryPoint]:
    """Return the entry points of installed packages that register components."""
    return list(importlib.metadata.entry_points(group="hqlt_lab.components"))


def list_declared_files() -> list[Path]:
    """Return the files that HQLT_WITH and pyproject.toml name, without loading them."""
    return [*list_inherited_files(), *list_project_files()]


def list_project_files() -> list[Path]:
    """Return the files listed in pyproject.toml of the working directory."""
    return [Path(file) for file in _read_project_files(Path("pyproject.toml"))]


def file_load_hint(name: str) -> str:
    """Return a hint to use --with if NAME.py exists in the working directory and is not loaded, else ""."""
    file = Path(f"{name}.py")
    is_not_loaded = name.isidentifier() and file.is_file() and file.resolve() not in _module_names
    return f"{file} exists but was not loaded. Load it with: hqlt --with {file} ..." if is_not_loaded else ""


def list_inherited_files() -> list[Path]:
    """Return the files that the parent process passed in HQLT_WITH."""
    return [Path(file) for file in os.environ.get(FILES_VARIABLE, "").split(os.pathsep) if file]


def _read_project_files(project: Path) -> list[str]:
    if not project.is_file():
        return []
    try:
        section = tomllib.loads(project.read_text()).get("tool", {}).get("hqlt_lab", {})
    except tomllib.TOMLDecodeError as error:
        raise project_error(
            project, "", code="invalid_toml", message=f"the file is not valid TOML ({error})."
        ) from error
    files = section.get("with", []) if isinstance(section, dict) else section
    if unknown := [key for key in section if key != "with"] if isinstance(section, dict) else []:
        raise project_error(
            project,
            f"tool.hqlt_lab.{unknown[0]}",
            code="unknown_project_setting",
            message="there is no such setting.",
            hint="Settings: with.",
        )
    if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
        raise project_error(
            project,
            "tool.hqlt_lab.with",
            code="not_a_list_of_files",
            message=f"a list of files is needed, got {files!r}.",
            hint='Write with = ["my_rule.py"].',
        )
    return files


def project_error(project: Path, path: str, code: str, message: str, hint: str = "") -> RegistryError:
    """Return an error about a setting in pyproject.toml."""
    return RegistryError(ConfigIssue(path, code, message, hint, source=str(project)))
