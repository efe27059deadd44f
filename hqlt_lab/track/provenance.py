"""Provenance: the code, libraries and machine that a result was produced with.

Once per study: the git commit with uncommitted changes, library versions, machine and command.  Per cell: a hash of the
lab's own sources and one of each component it uses, so that results of different code versions can be distinguished.
"""

import importlib.metadata
import inspect
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hqlt_lab.errors import RegistryError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.fill_defaults import LATER_KINDS, fill_model, strip_model_defaults
from hqlt_lab.files import read_json
from hqlt_lab.hashing import digest_bytes, hash_chunks
from hqlt_lab.redact import redact_secrets
from hqlt_lab.registry import KINDS, available, find_builtin_modules, find_factory, generate_source, is_interactive
from hqlt_lab.rundir.sync_state import read_sync_state
from hqlt_lab.track.tags import sanitize_key

LIBRARIES = ("torch", "lightning", "optuna", "mlflow", "omegaconf", "hqlt-lab")
MAX_DIFF_LENGTH = 1_000_000  # characters


def git_state(folder: Path) -> dict[str, Any] | None:
    """Return commit and uncommitted changes of the repository of a folder; None without a repository or git."""
    commit = run_git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    changed = run_git(folder, "status", "--porcelain") or ""
    diff = (run_git(folder, "diff", "HEAD") or "") if changed else ""
    return {
        "commit": commit.strip(),
        "dirty": bool(changed),
        "changed": changed.splitlines()[:1000],
        "diff": redact_secrets(diff[:MAX_DIFF_LENGTH]),
        "diff_is_cut": len(diff) > MAX_DIFF_LENGTH,
    }


def run_git(folder: Path, *arguments: str) -> str | None:
    """Return the output of a git command; None if it fails."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        process = subprocess.run(command, capture_output=True, timeout=20, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout.decode(errors="replace") if process.returncode == 0 else None


def library_versions() -> dict[str, str]:
    """Return the versions of Python and of the main libraries."""
    versions = {"python": platform.python_version()}
    for library in LIBRARIES:
        try:
            versions[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            versions[library] = "not installed"
    return versions


def machine_info() -> dict[str, Any]:
    """Return host, platform, processor, memory and GPUs of this machine."""
    return {
        "host": platform.node(),
        "platform": platform.platform(),
        "processor": cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": memory_gib(),
        "gpus": gpu_names(),
    }


def cpu_model() -> str:
    """Return the model name of the processor, or its architecture if the name is not available."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def memory_gib() -> float:
    """Return the memory of the machine in GiB."""
    import psutil

    return round(psutil.virtual_memory().total / 2**30, 1)


def gpu_names() -> list[str]:
    """Return the names of the GPUs without initializing CUDA, which must not happen before workers are forked."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return gpu_names_from_driver()


def gpu_names_from_driver() -> list[str]:
    """Return the GPU names that NVIDIA's driver lists in /proc."""
    files = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    lines = [line for file in files for line in file.read_text().splitlines() if line.startswith("Model:")]
    return [line.partition(":")[2].strip() for line in lines]


# packages whose code affects every result, with the pattern of their files; components are hashed one by one
HASHED_PACKAGES = {
    "registry": "*.py",
    "ops": "*.py",
    "model": "*.py",
    "rundir": "*.py",
    "agent": "*.py",
    "train": "*.py",
    "tasks": "_*.py",
    "components": "_*.py",
}


def collect_provenance(folder: Path | None = None) -> dict[str, Any]:
    """Return the provenance of a study: state of the repository of the folder, versions, machine and command."""
    return {
        "git": git_state(folder or Path.cwd()),
        "versions": library_versions(),
        "machine": machine_info(),
        "command": redact_secrets(shlex.join(sys.argv)),
    }


def cell_code_hashes(cell: Cell) -> dict[str, str]:
    """Return short hashes of the code of a cell: "lab", its task and each component of its layers, as "kind name"."""
    return {
        "lab": lab_hash(),
        **component_hash_entry("task", cell.task["name"]),
        **component_hashes(json.dumps(cell.model, sort_keys=True)),
    }


def component_hashes(model_json: str) -> dict[str, str]:
    """Return the hashes of the components of a model."""
    hashes: dict[str, str] = {}
    for components in layer_component_names(model_json):
        names = dict(components)
        if "update_rule" in names:
            names.setdefault("feature_map", find_factory("update_rule", names["update_rule"]).feature_map)  # type: ignore[attr-defined]
        if "kv" in getattr(find_factory("mixer", names["mixer"]), "reads", ("fw", "kv")):
            for kind, component in LATER_KINDS.items():
                names.setdefault(kind, component["name"])
        for kind, name in names.items():
            hashes |= component_hash_entry(kind, name)
    return hashes


@cache
def layer_component_names(model_json: str) -> list[dict[str, str]]:
    """Return the component of each kind for each layer.  JSON makes the argument hashable for the cache."""
    # the key "parts" keeps its old name because it is hashed into cell keys
    layers = strip_model_defaults(fill_model(json.loads(model_json)))["parts"]
    return [
        {kind: component["name"] for kind, component in components.items()}
        for components in (layers if isinstance(layers, list) else [layers])
    ]


def component_hash_entry(kind: str, name: str) -> dict[str, str]:
    """Return {"kind name": hash} of a component."""
    return {f"{kind} {name}": component_hash(kind, name)}


def component_hash(kind: str, name: str) -> str:
    """Return the hash of a component's file; for one of a notebook, of the file that would be written now."""
    factory = find_factory(kind, name)
    if not is_interactive(factory):
        return source_hash(factory)
    try:
        source = generate_source(kind, name)
    except RegistryError:  # it cannot be trained, so that no result depends on its source
        return "unknown"
    return hash_contents([(source.name, source.text.encode())])


@cache
def source_hash(factory: Callable[..., Any]) -> str:
    """Return the hash of the file of a factory, cached at first use; "unknown" if there is no such file."""
    try:
        file = inspect.getsourcefile(factory)
    except TypeError:
        file = None
    return hash_files([Path(file)]) if file and Path(file).is_file() else "unknown"


def current_code_hashes(names: Iterable[str]) -> dict[str, str]:
    """Return the current hashes of these names ("lab" or "kind name"); components that no longer exist are left out.

    Built-in components are not imported for this.
    """
    return {name: code_hash for name in names if (code_hash := current_code_hash(name)) is not None}


def current_code_hash(name: str) -> str | None:
    """Return the current hash of "lab" or "kind name"; None if there is no such component anymore."""
    if name == "lab":
        return lab_hash()
    kind, _, component = name.partition(" ")
    if kind not in KINDS:
        return None
    if (builtin := builtin_component_hash(kind, component)) is not None:
        return builtin
    return component_hash(kind, component) if component in available(kind) else None


@cache
def builtin_component_hash(kind: str, name: str) -> str | None:
    """Return the hash of a built-in component without importing it; None if it is not built in."""
    module = find_builtin_modules(kind).get(name)
    if module is None:
        return None
    package, _, module_name = module.rpartition(".")
    return hash_files([package_dir(package.removeprefix("hqlt_lab.")) / f"{module_name}.py"])


def study_commits(study: Path, artifacts: Path) -> list[str]:
    """Return the commits that a study was run with: the last one, and earlier ones if MLflow's artifacts are local."""
    sync_state = read_sync_state(study)
    files = (
        artifacts.glob(f"{sanitize_key(study.name)}/{sync_state.run}/artifacts/provenance/*.json") if sync_state else ()
    )
    states = [read_json(file, dict).get("git") or {} for file in (*files, study / "provenance.json") if file.is_file()]
    return sorted({state["commit"] for state in states if "commit" in state})


@cache
def lab_hash() -> str:
    """Return the hash of the code that takes part in every run."""
    return hash_files(
        file for package, pattern in HASHED_PACKAGES.items() for file in sorted(package_dir(package).rglob(pattern))
    )


def package_dir(name: str) -> Path:
    """Return the folder of a package of hqlt_lab, without importing it."""
    spec = find_spec(f"hqlt_lab.{name}")
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def hash_files(files: Iterable[Path]) -> str:
    """Return a hash of the names and contents of files, as 12 hexadecimal digits."""
    return hash_contents((file.name, file.read_bytes()) for file in files)


def hash_contents(contents: Iterable[tuple[str, bytes]]) -> str:
    """Return a hash of (file name, content) pairs, as 12 hexadecimal digits."""
    return hash_chunks((f"{name}\n".encode() + digest_bytes(content) for name, content in contents), 12)
