"""`hqlt doctor`: installed software, available devices, selected backends and missing packages."""

import importlib.metadata
import importlib.util
import platform
import sys
from typing import Annotated, NamedTuple

from rich.table import Table
from rich.text import Text

from hqlt_lab.cli.terminal.console import console
from hqlt_lab.cli.terminal.shared_options import json_option
from hqlt_lab.formatting import dump_json


class Finding(NamedTuple):
    """One row of the diagnosis."""

    topic: str
    found: str
    note: str = ""


def show_diagnosis(as_json: Annotated[bool, json_option("a list of findings: topic, found, note.")] = False) -> None:
    """Show installed packages, devices, the backend of each operation, and how to install missing packages."""
    findings = [*software_findings(), *device_findings(), *backend_findings(), *extra_findings()]
    if as_json:
        print(dump_json([finding._asdict() for finding in findings]))
        return
    table = Table("", "", "", show_header=False, box=None, pad_edge=False)
    for finding in findings:
        table.add_row(Text(finding.topic, style="bold"), Text(finding.found), Text(finding.note))
    console.print(table)


def software_findings() -> list[Finding]:
    """Return the versions of Python and of the required libraries."""
    python = Finding(
        "python", platform.python_version(), "" if sys.version_info >= (3, 11) else "3.11 or newer is needed"
    )
    required = ("torch", "lightning", "omegaconf", "optuna", "mlflow", "lm-eval")
    return [python, *(Finding(name, installed_version(name) or "missing", install_hint(name)) for name in required)]


def device_findings() -> list[Finding]:
    """Return the devices that torch can use."""
    import torch

    cpu = Finding("cpu", f"{torch.get_num_threads()} threads", "float32 (bfloat16 is slow without hardware support)")
    if not torch.cuda.is_available():
        return [cpu, Finding("gpu", "none", "all features work on the CPU, but slower")]
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return [cpu, *(Finding(f"gpu {index}", name) for index, name in enumerate(names))]


def backend_findings() -> list[Finding]:
    """Return which backend computes each memory in training, and why."""
    from hqlt_lab.model.analysis.backend_report import default_backends

    selected = [
        Finding(topic, choice.name, choice.slow_reason or choice.reason) for topic, choice in default_backends().items()
    ]
    return [
        *selected,
        Finding(
            "fast weights, other",
            "recurrent",
            "update rules that are not linear in their state are computed step by step",
        ),
    ]


def extra_findings() -> list[Finding]:
    """Return which optional packages are installed, and how to install the others."""
    module_by_extra = {
        "gpu": "fla",
        "flash": "flash_attn",
        "data": "sentencepiece",
        "rl": "gymnasium",
        "ray": "ray",
        "postgres": "psycopg",
    }
    return [
        Finding(
            f"extra {extra}",
            "installed" if importlib.util.find_spec(module) else "not installed",
            install_command(extra, module),
        )
        for extra, module in module_by_extra.items()
    ]


def install_command(extra: str, module: str) -> str:
    """Return the command that installs a missing extra; "" if it is installed."""
    if importlib.util.find_spec(module):
        return ""
    isolated = "--no-build-isolation " if extra == "flash" else ""
    return f"pip install {isolated}-c constraints.txt -e '.[{extra}]'"


def installed_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def install_hint(package: str) -> str:
    return "" if installed_version(package) else "pip install -c constraints.txt -e ."
