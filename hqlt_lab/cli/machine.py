"""hqlt doctor: what this machine has, what the lab will use on it and why, and what is missing."""

import importlib.metadata
import importlib.util
import platform
import sys
from typing import Annotated, NamedTuple

from rich.table import Table
from rich.text import Text

from hqlt_lab.cli.options import for_programs
from hqlt_lab.cli.screen import console
from hqlt_lab.words import in_json


class Finding(NamedTuple):
    """One line of the diagnosis."""

    topic: str
    found: str
    note: str = ""


def doctor(as_json: Annotated[bool, for_programs("a list of findings: topic, found, note.")] = False) -> None:
    """What is installed, which implementation each operation will use and why, what is missing and how to get it."""
    findings = [*software(), *devices(), *operations(), *extras()]
    if as_json:
        print(in_json([finding._asdict() for finding in findings]))
        return
    table = Table("", "", "", show_header=False, box=None, pad_edge=False)
    for finding in findings:
        table.add_row(Text(finding.topic, style="bold"), Text(finding.found), Text(finding.note))
    console.print(table)


def software() -> list[Finding]:
    """Python and the libraries the lab stands on."""
    python = Finding(
        "python", platform.python_version(), "" if sys.version_info >= (3, 11) else "3.11 or newer is needed"
    )
    needed = ("torch", "lightning", "omegaconf", "optuna", "mlflow", "lm-eval")
    return [python, *(Finding(name, version(name) or "missing", hint(name)) for name in needed)]


def devices() -> list[Finding]:
    """What torch can compute on."""
    import torch

    cores = Finding("cpu", f"{torch.get_num_threads()} threads", "float32 (bfloat16 is slow without hardware for it)")
    if not torch.cuda.is_available():
        return [cores, Finding("gpu", "none", "everything works on the CPU, slower")]
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return [cores, *(Finding(f"gpu {index}", name) for index, name in enumerate(names))]


def operations() -> list[Finding]:
    """Which backend computes each memory while learning, and why."""
    from hqlt_lab.model.choices import usual_choices

    chosen = [Finding(topic, choice.name, choice.slow or choice.why) for topic, choice in usual_choices().items()]
    return [
        *chosen,
        Finding("fast weights, other", "recurrent", "rules that are not linear in their state go one step at a time"),
    ]


def extras() -> list[Finding]:
    """Optional packages, and how to get those that are not there."""
    wanted = {
        "gpu": "fla",
        "flash": "flash_attn",
        "data": "sentencepiece",
        "rl": "gymnasium",
        "ray": "ray",
        "postgres": "psycopg",
    }
    return [
        Finding(
            f"extra {extra}", "installed" if importlib.util.find_spec(module) else "not installed", get(extra, module)
        )
        for extra, module in wanted.items()
    ]


def get(extra: str, module: str) -> str:
    """How to install an extra that is missing."""
    if importlib.util.find_spec(module):
        return ""
    isolated = "--no-build-isolation " if extra == "flash" else ""
    return f"pip install {isolated}-c constraints.txt -e '.[{extra}]'"


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def hint(package: str) -> str:
    return "" if version(package) else "pip install -c constraints.txt -e ."
