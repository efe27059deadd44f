"""The house: rooms import in one direction, shelves hold what they say, the package holds every folder."""

import ast
import importlib
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from hqlt_lab.registry import KINDS, available, describe

ROOT = Path(__file__).parents[2]

# who may import whom; a room may always import itself
MAY_IMPORT = {
    "errors": set(),
    "files": {"errors"},
    "words": set(),
    "secrets": set(),
    "registry": {"errors"},
    "data": {"errors", "files"},
    "ops": {"errors"},
    "components": {"errors", "registry", "ops"},
    "model": {"errors", "registry", "ops", "components"},
    "tasks": {"errors", "registry", "data"},
    "experiment": {"errors", "registry", "model"},
    "agent": {"errors", "model", "tasks", "experiment"},
    "train": {"errors", "files", "secrets", "registry", "model", "tasks", "experiment", "agent"},
    "hugging_face": {"errors", "files", "registry", "data", "model", "tasks", "experiment", "train"},
    "generation": {"errors", "files", "registry", "data", "model", "tasks", "experiment", "train", "hugging_face"},
    "evaluation": {"errors", "files", "registry", "data", "model", "tasks", "experiment", "train", "generation"},
    "track": {"errors", "files", "secrets", "registry", "experiment", "train"},
    "study": {"errors", "files", "secrets", "registry", "experiment", "train", "track", "evaluation"},
    "report": {"errors", "files", "words", "registry", "experiment", "train", "study"},
    "api": {
        "errors",
        "files",
        "secrets",
        "registry",
        "experiment",
        "train",
        "hugging_face",
        "generation",
        "evaluation",
        "track",
        "study",
        "report",
    },
    "check": {"errors", "registry", "ops", "components", "model", "tasks"},
    "cli": {
        "errors",
        "files",
        "words",
        "secrets",
        "registry",
        "data",
        "model",
        "agent",
        "experiment",
        "train",
        "generation",
        "evaluation",
        "track",
        "study",
        "report",
        "check",
        "api",
    },
    "reference": {"registry", "experiment", "cli"},
}


def room_of(file: Path) -> str:
    parts = file.relative_to(ROOT).parts
    return parts[0] if parts[0] in ("registry", "components") else parts[1].removesuffix(".py")


def sources() -> list[Path]:
    folders = [ROOT / folder for folder in ("hqlt_lab", "registry", "components")]
    return [
        file for folder in folders for file in sorted(folder.rglob("*.py")) if file != ROOT / "hqlt_lab/__init__.py"
    ]


def imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    return found


@pytest.mark.parametrize("file", sources(), ids=lambda file: str(file.relative_to(ROOT)))
def test_rooms_import_in_one_direction(file):
    room = room_of(file)
    used = {name.split(".")[1] for name in imports(file) if name.startswith("hqlt_lab.")}
    assert used - {room} <= MAY_IMPORT[room]
    assert not {"components", "registry"} & {name.split(".")[0] for name in imports(file)}


def test_every_room_stands_in_the_import_table():
    assert {room_of(file) for file in sources()} == set(MAY_IMPORT)


@pytest.mark.parametrize("kind", KINDS)
def test_file_name_is_registered_name_is_class_name(kind):
    for name in available(kind):
        entry = describe(kind, name)
        assert Path(entry.file).stem == name
        assert entry.maker.__name__.rstrip("_").lower() in (name, name.replace("_", ""))
        assert entry.idea.endswith((".", "?")), f"{kind} {name}: its first paragraph says the idea in a sentence"


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_on_a_shelf_is_a_registered_part(kind):
    shelf = Path(importlib.import_module(KINDS[kind].shelf).__path__[0])
    assert [file.stem for file in sorted(shelf.glob("[a-z]*.py"))] == available(kind)


def test_the_package_has_every_folder():
    script = (
        "import setuptools; setuptools.setup = lambda **words: print(*words['packages']); exec(open('setup.py').read())"
    )
    listed = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    folders = {
        file.parent.relative_to(ROOT)
        for name in ("hqlt_lab", "registry", "components")
        for file in (ROOT / name).rglob("__init__.py")
    }
    names = {".".join(folder.parts) for folder in folders}
    assert set(listed.split()) == {name if name.startswith("hqlt_lab") else f"hqlt_lab.{name}" for name in names}


def test_a_clone_that_is_not_installed_says_so_in_one_sentence():
    # -S: no site-packages, so no editable finder; the clone's own folder is all there is
    told = subprocess.run([sys.executable, "-S", "-c", "import hqlt_lab"], cwd=ROOT, capture_output=True, text=True)
    assert told.stderr.strip().splitlines()[-1].startswith("ImportError: hqlt_lab is not installed: run `make demo`")


def test_the_bare_folder_names_cannot_be_imported():
    for name in ("registry", "components"):
        told = subprocess.run([sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True)
        assert "AssertionError" in told.stderr


def test_help_and_import_load_nothing_heavy():
    script = "import sys; from hqlt_lab.cli.app import app; import hqlt_lab.model.config; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "lightning", "mlflow", "optuna", "transformers", "matplotlib"} & set(loaded)


def test_torch_is_the_pinned_version():
    pinned = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch==")]
    assert pinned == [f"torch=={importlib.metadata.version('torch').split('+')[0]}"]
