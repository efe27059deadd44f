"""Package structure: allowed imports, one registered component per file, complete packages, light imports."""

import ast
import importlib
import importlib.metadata
import re
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from hqlt_lab.registry import KINDS, available, describe

ROOT = Path(__file__).parents[2]
MAX_MODULES = 16  # in a folder, besides one file per registered component

# What each package may import besides itself.  The name of another package includes its sub-packages.  Within a package
# the sub-packages are named one by one, and the package's own name stands for the modules directly in it.
ALLOWED_IMPORTS = {
    "errors": "",
    "file_lock": "errors",
    "files": "errors",
    "formatting": "",
    "hashing": "",
    "process_settings": "",
    "redact": "",
    "log_handler": "redact",
    "registry": "errors hashing",
    "data": "errors files hashing data.tokenizers data.pipeline data.sources",
    "data.tokenizers": "errors process_settings",
    "data.pipeline": "errors file_lock files hashing data data.tokenizers data.sources",
    "data.sources": "errors files data data.tokenizers",
    "ops": "errors ops.attention ops.fused ops.scan",
    "ops.attention": "ops ops.scan",
    "ops.fused": "ops",
    "ops.scan": "ops",
    "components": "",
    "components.attention": "registry ops components",
    "components.feature_maps": "errors registry ops",
    "components.mixers": "errors registry components",
    "components.positions": "errors registry",
    "components.timings": "registry ops",
    "components.update_rules": "errors registry ops",
    "model": "errors hashing registry ops components",
    "model.analysis": "errors registry ops components model",
    "tasks": "errors hashing registry",
    "tasks.copying": "errors registry tasks",
    "tasks.environments": "errors registry tasks",
    "tasks.recall": "errors registry tasks",
    "tasks.stacks": "errors registry tasks",
    "tasks.state_tracking": "errors registry tasks",
    "tasks.text": "errors registry data tasks",
    "experiment": "errors hashing registry model experiment.validate experiment.yaml",
    "experiment.validate": "errors hashing registry model experiment experiment.yaml",
    "experiment.yaml": "errors experiment",
    "stats": "hashing experiment",
    "rundir": "errors file_lock files experiment",
    "agent": "errors model tasks experiment",
    "train": "errors files hashing process_settings redact registry model tasks experiment rundir agent "
    "train.checkpoints train.distributed train.rl",
    "train.checkpoints": "files experiment rundir train",
    "train.cost": "errors files process_settings registry model tasks experiment train train.rl",
    "train.distributed": "errors files log_handler redact registry model experiment rundir train",
    "train.rl": "errors process_settings model tasks experiment rundir agent train train.checkpoints",
    "hugging_face": "errors files data model experiment rundir train",
    "generation": "errors hashing registry data model train hugging_face",
    "evaluation": "errors files hashing data model tasks experiment rundir train generation",
    "track": "errors file_lock files process_settings hashing redact registry experiment rundir track.ui",
    "track.ui": "errors redact track",
    "study": "errors files formatting hashing registry experiment rundir train evaluation track study.executors "
    "study.ledger study.plan",
    "study.executors": "errors file_lock files log_handler process_settings redact registry experiment rundir train "
    "track",
    "study.launchers": "errors hashing registry experiment study.executors",
    "study.ledger": "errors file_lock files hashing redact registry experiment rundir track",
    "study.plan": "errors files formatting hashing registry experiment stats rundir track study.ledger",
    "report": "errors files formatting hashing registry experiment stats rundir study report.figures report.render "
    "report.stats report.wording",
    "report.compare": "errors formatting experiment stats rundir study report report.render report.stats "
    "report.wording",
    "report.figures": "formatting experiment stats rundir study report report.stats report.wording",
    "report.render": "files formatting hashing experiment stats rundir study report report.figures report.stats "
    "report.wording",
    "report.stats": "experiment stats rundir study report",
    "report.wording": "formatting experiment stats rundir study report report.stats",
    "memory_profile": "errors files formatting model experiment rundir report",
    "api": "errors files redact registry experiment rundir train hugging_face generation track study report "
    "memory_profile",
    "check": "errors files registry ops components model tasks experiment rundir train study report",
    "check.modules": "errors check",
    "cli": "process_settings log_handler redact registry cli.commands cli.terminal",
    "cli.commands": "errors files formatting hashing registry data model experiment rundir agent train generation "
    "track study report memory_profile check api cli.templates cli.terminal",
    "cli.templates": "errors registry",
    "cli.terminal": "errors files formatting log_handler redact registry model experiment study",
    "reference_pages": "registry experiment cli",
}


def source_files() -> list[Path]:
    folders = [ROOT / folder for folder in ("hqlt_lab", "registry", "components")]
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    return [file for file in files if file != ROOT / "hqlt_lab/__init__.py"]


def module_name(file: Path) -> str:
    """Return the dotted name of a module below hqlt_lab, such as "study.plan.cells"."""
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removeprefix("hqlt_lab.").removesuffix(".__init__")


def find_package(name: str) -> str:
    """Return the innermost package of the import table that a module or an imported name belongs to."""
    while name and name not in ALLOWED_IMPORTS:
        name = name.rpartition(".")[0]
    return name


def imported_names(file: Path) -> set[str]:
    """Return the dotted names of all imported modules and of the names imported from them."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def is_allowed(importer: str, imported: str) -> bool:
    allowed, top_level = ALLOWED_IMPORTS[importer].split(), imported.partition(".")[0]
    return imported in (importer, *allowed) or (top_level in allowed and top_level != importer.partition(".")[0])


@pytest.mark.parametrize("file", source_files(), ids=lambda file: str(file.relative_to(ROOT)))
def test_package_imports_only_what_the_table_allows(file):
    package, names = find_package(module_name(file)), imported_names(file)
    used = {find_package(name.removeprefix("hqlt_lab.")) for name in names if name.startswith("hqlt_lab.")} - {""}
    assert not [name for name in sorted(used) if not is_allowed(package, name)], package
    assert not {"components", "registry"} & {name.split(".")[0] for name in names}, "import them from hqlt_lab"


def test_every_package_is_in_the_import_table():
    packages = {module_name(file) for file in source_files() if file.name == "__init__.py"}
    assert packages | {module_name(file) for file in (ROOT / "hqlt_lab").glob("[!_]*.py")} == set(ALLOWED_IMPORTS)


def test_import_table_has_no_cycles_between_packages():
    graph: dict[str, set[str]] = {}
    for package, allowed in ALLOWED_IMPORTS.items():
        top_level = package.partition(".")[0]
        graph.setdefault(top_level, set()).update({name.partition(".")[0] for name in allowed.split()} - {top_level})
    assert list(TopologicalSorter(graph).static_order())  # raises CycleError


def test_import_table_has_no_unknown_cycles_between_sub_packages():
    graph = {
        package: {name for name in allowed.split() if "." in name}
        for package, allowed in ALLOWED_IMPORTS.items()
        if "." in package
    }
    assert list(TopologicalSorter(graph).static_order())  # raises CycleError


def package_indexes() -> list[Path]:
    """Return the `__init__.py` files whose docstring lists modules, one per line with its purpose."""
    files = [file for file in (ROOT / "hqlt_lab").rglob("__init__.py") if len(listed_modules(file)) > 2]
    return sorted(files)


def listed_modules(file: Path) -> set[str]:
    docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
    names = set(re.findall(r"^ *([a-z_]+)/?  +\S", docstring, re.MULTILINE))
    return names if any((file.parent / f"{name}.py").exists() for name in names) else set()


@pytest.mark.parametrize("file", package_indexes(), ids=lambda file: file.parent.name)
def test_a_package_index_lists_exactly_the_modules_of_the_package(file):
    modules = {path.stem for path in file.parent.glob("*.py")} | {
        path.parent.name for path in file.parent.glob("*/__init__.py")
    }
    assert listed_modules(file) == {name for name in modules if not name.startswith("__")}


def test_a_folder_has_few_modules():
    registered = {Path(describe(kind, name).file) for kind in KINDS for name in available(kind)}
    modules = [file for file in source_files() if file.name != "__init__.py" and file not in registered]
    assert Counter(file.parent for file in modules).most_common(1)[0][1] <= MAX_MODULES


def test_module_names_do_not_repeat_or_shadow_the_standard_library():
    """Commands are named by the command, components by their registered name; `_base` and `_options` are per family."""
    registered = {Path(describe(kind, name).file) for kind in KINDS for name in available(kind)}
    commands = ROOT / "hqlt_lab/cli/commands"
    names = Counter(
        file.stem
        for file in source_files()
        if file not in registered and file.parent != commands and not file.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1 or name in sys.stdlib_module_names] == []


@pytest.mark.parametrize("kind", KINDS)
def test_file_name_is_registered_name_is_class_name(kind):
    for name in available(kind):
        entry = describe(kind, name)
        assert Path(entry.file).stem == name
        assert entry.factory.__name__.rstrip("_").lower() in (name, name.replace("_", ""))
        assert entry.summary.endswith((".", "?")), f"{kind} {name}: its first paragraph must be a sentence"


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_of_a_component_folder_is_registered(kind):
    folder = Path(importlib.import_module(KINDS[kind].package).__path__[0])
    assert sorted(file.stem for file in folder.rglob("[a-z]*.py")) == available(kind)


def test_setup_lists_every_package():
    print_packages = "setuptools.setup = lambda **options: print(*options['packages'])"
    script = f"import setuptools; {print_packages}; exec(open('setup.py').read())"
    output = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    folders = {
        file.parent.relative_to(ROOT)
        for name in ("hqlt_lab", "registry", "components")
        for file in (ROOT / name).rglob("__init__.py")
    }
    names = {".".join(folder.parts) for folder in folders}
    assert set(output.split()) == {name if name.startswith("hqlt_lab") else f"hqlt_lab.{name}" for name in names}


def test_import_from_a_clone_that_is_not_installed_says_so():
    # -S: without site-packages there is no editable install, only the clone's own folder
    result = subprocess.run([sys.executable, "-S", "-c", "import hqlt_lab"], cwd=ROOT, capture_output=True, text=True)
    assert result.stderr.strip().splitlines()[-1].startswith("ImportError: hqlt_lab is not installed: run `make demo`")


def test_registry_and_components_cannot_be_imported_without_hqlt_lab():
    for name in ("registry", "components"):
        result = subprocess.run([sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True)
        assert "AssertionError" in result.stderr


def test_command_line_and_config_import_no_heavy_library():
    script = "import sys; from hqlt_lab.cli.app import app; import hqlt_lab.model.config; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "lightning", "mlflow", "optuna", "transformers", "matplotlib"} & set(loaded)


def test_torch_is_the_pinned_version():
    pinned = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch==")]
    assert pinned == [f"torch=={importlib.metadata.version('torch').split('+')[0]}"]
