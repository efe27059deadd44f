"""Diagnostics of a run: the selected backends, the determinism check and the probes of the memories.

    ops.json            {"device": "cuda", "precision": "bf16-mixed", "scan": "fla", "scan_why": "the fastest ...", ...}
    determinism.json    {"repeatable": false, "differs": ["loss", "head.weight"]}
    probes.jsonl        {"step": 100, "layers": [{"share": [0.31, 0.84], "state_rank": [3.2, 1.1], ...}, ...]}

ops.json is rewritten at every start, because a run may be resumed on another device.  determinism.json is written once,
at the first start.  probes.jsonl gets one line per probe; each layer maps a quantity to one number per head, and
quantities that the layer does not have are absent.  `model/analysis/layer_probes.py` defines the quantities.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

from hqlt_lab.files import check_types, read_json, read_text_values, translate_damage, write_atomic
from hqlt_lab.rundir.jsonl import append_line, open_for_append, read_jsonl

OPS_FILE = "ops.json"


class ChosenBackend(Protocol):
    """A selected backend, as in `ops.dispatch.BackendChoice`."""

    @property
    def name(self) -> str: ...
    @property
    def reason(self) -> str: ...


class ChosenLayerBackends(Protocol):
    """The backends of one layer, as in `model.analysis.backend_report.LayerBackends`."""

    @property
    def scan(self) -> ChosenBackend: ...
    @property
    def attention(self) -> ChosenBackend: ...


def write_backends(folder: Path, device: str, precision: str, layers: Sequence[ChosenLayerBackends]) -> None:
    """Write ops.json.  If layers use different backends, their names are joined by a plus sign."""
    content = {"device": device, "precision": precision}
    choices = {"scan": [layer.scan for layer in layers], "attention": [layer.attention for layer in layers]}
    for op, backends in choices.items():
        distinct = sorted({(backend.name, backend.reason) for backend in backends})
        content[op] = "+".join(dict.fromkeys(name for name, _ in distinct))
        content[f"{op}_why"] = "; ".join(dict.fromkeys(reason for _, reason in distinct))
    write_atomic(folder / OPS_FILE, json.dumps(content, indent=1) + "\n")


def read_backends(folder: Path) -> dict[str, str]:
    """Return the content of ops.json, written at the latest start; empty before the first."""
    file = folder / OPS_FILE
    return read_text_values(file) if file.exists() else {}


DETERMINISM_FILE = "determinism.json"
MAX_NAMES_IN_WARNING = 3


@dataclass(frozen=True)
class DeterminismCheck:
    """Result of computing the first training step twice."""

    repeatable: bool  # the two computations were bitwise equal, in all processes
    differs: list[str] = field(default_factory=list)  # in rank 0: "loss", and the parameters whose gradients differ

    def write(self, folder: Path) -> None:
        write_atomic(folder / DETERMINISM_FILE, json.dumps(asdict(self), indent=1) + "\n")

    @property
    def warning_message(self) -> str:
        """Warning for a run with `trainer.deterministic` whose first step was not repeatable."""
        names, more = ", ".join(self.differs[:MAX_NAMES_IN_WARNING]), len(self.differs) - MAX_NAMES_IN_WARNING
        where = f"{names} and {more} more" if more > 0 else names or "a process other than the first"
        return f"trainer.deterministic is true, but the first step, computed twice, differs in {where}."


def read_determinism_check(folder: Path) -> DeterminismCheck | None:
    """Return the result of the determinism check, or None if it did not run."""
    file = folder / DETERMINISM_FILE
    if not file.exists():
        return None
    fields = read_json(file, dict)
    with translate_damage(file):
        check_types(fields, {"repeatable": (bool,), "differs": (list,)})
        names = {str(number): name for number, name in enumerate(fields.get("differs", ()))}
        check_types(names, dict.fromkeys(names, (str,)))
        return DeterminismCheck(**fields)


PROBES_FILE = "probes.jsonl"
LayerProbes = Mapping[str, Sequence[float | None]]


@dataclass(frozen=True)
class ProbeTable:
    """The probes of all layers at one step: per layer, each quantity with its value per head (None: not finite)."""

    step: int
    layers: list[dict[str, list[float | None]]]


class ProbeWriter:
    """Appends probes to probes.jsonl.  Steps only increase, so a run resumed from a checkpoint writes none twice."""

    def __init__(self, folder: Path) -> None:
        rows, self.offset = read_jsonl(folder / PROBES_FILE)
        self.file, self.last_step = folder / PROBES_FILE, max((row["step"] for row in rows), default=-1)

    def write_table(self, step: int, layers: Sequence[LayerProbes]) -> None:
        """Append the probes of a step, unless that step is already in the file."""
        if step <= self.last_step:
            return
        with open_for_append(self.file, self.offset) as opened:
            append_line(opened, {"step": step, "layers": [replace_non_finite(layer) for layer in layers]})
            self.last_step, self.offset = step, opened.tell()


def replace_non_finite(layer: LayerProbes) -> dict[str, list[float | None]]:
    """Replace NaN and infinity by None, because JSON cannot represent them."""
    return {
        name: [value if value is not None and math.isfinite(value) else None for value in heads]
        for name, heads in layer.items()
    }


def read_probe_tables(folder: Path) -> list[ProbeTable]:
    """Return all probes of the run in this folder, in the order of their steps."""
    rows, _ = read_jsonl(folder / PROBES_FILE)
    return [ProbeTable(row["step"], row["layers"]) for row in rows if "layers" in row]


def read_probes(folder: Path) -> ProbeTable | None:
    """Return the latest probes of the run in this folder, or None if there are none."""
    tables = read_probe_tables(folder)
    return tables[-1] if tables else None
