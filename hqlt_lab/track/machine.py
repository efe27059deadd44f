"""What a study ran on: the state of the repository, the libraries, the machine."""

import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from hqlt_lab.secrets import scrubbed

LIBRARIES = ("torch", "lightning", "optuna", "mlflow", "omegaconf", "hqlt-lab")
LONGEST_DIFF = 1_000_000  # characters


def repository(folder: Path) -> dict[str, Any] | None:
    """Commit and changes of the repository that holds the folder; None without one, or without git."""
    commit = git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    changed = git(folder, "status", "--porcelain") or ""
    diff = (git(folder, "diff", "HEAD") or "") if changed else ""
    return {
        "commit": commit.strip(),
        "dirty": bool(changed),
        "changed": changed.splitlines()[:1000],
        "diff": scrubbed(diff[:LONGEST_DIFF]),
        "diff_is_cut": len(diff) > LONGEST_DIFF,
    }


def git(folder: Path, *words: str) -> str | None:
    """What git says, if it can."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *words]
    try:
        told = subprocess.run(command, capture_output=True, timeout=20, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return told.stdout.decode(errors="replace") if told.returncode == 0 else None


def versions() -> dict[str, str]:
    """Of Python and of what the lab stands on."""
    found = {"python": platform.python_version()}
    for library in LIBRARIES:
        try:
            found[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            found[library] = "not installed"
    return found


def machine() -> dict[str, Any]:
    """Where this process runs."""
    return {
        "host": platform.node(),
        "platform": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_gib": memory(),
        "gpus": gpus(),
    }


def processor() -> str:
    """The model of the processor, where the system tells."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text().splitlines() if told.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def memory() -> float:
    """Of the machine, in GiB."""
    import psutil

    return round(psutil.virtual_memory().total / 2**30, 1)


def gpus() -> list[str]:
    """By name, as far as they can be told without waking them: CUDA must not be touched before workers are forked."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return driver_says()


def driver_says() -> list[str]:
    """The names that NVIDIA's driver lists, without CUDA."""
    models = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    lines = [line for file in models for line in file.read_text().splitlines() if line.startswith("Model:")]
    return [line.partition(":")[2].strip() for line in lines]
