"""What the probes saw, in a file of the run's folder: a line of JSON for each look into the memories.

    {"step": 100, "layers": [{"share": [0.31, 0.84], "state_rank": [3.2, 1.1], ...}, ...]}

A layer maps each quantity to a number per head; a quantity that the layer does not have is absent.  What they mean:
`model/probes.py`.  Readable without torch.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hqlt_lab.train.lines import add_line, read_lines, write_on

FILE = "probes.jsonl"
Layer = Mapping[str, Sequence[float | None]]


@dataclass(frozen=True)
class ProbeTable:
    """One look: a mapping per layer, from a quantity to its number in each head (None: it was no number)."""

    step: int
    layers: list[dict[str, list[float | None]]]


class ProbeFile:
    """Where a run's probes are written; steps only rise, so a run that goes on from a checkpoint repeats none."""

    def __init__(self, folder: Path) -> None:
        looks, self.end = read_lines(folder / FILE)
        self.file, self.last = folder / FILE, max((look["step"] for look in looks), default=-1)

    def add(self, step: int, layers: Sequence[Layer]) -> None:
        """Write down one look, unless it is there."""
        if step <= self.last:
            return
        with write_on(self.file, self.end) as opened:
            add_line(opened, {"step": step, "layers": [numbers(layer) for layer in layers]})
            self.last, self.end = step, opened.tell()


def numbers(layer: Layer) -> dict[str, list[float | None]]:
    """As JSON knows them: it has no word for what is no number."""
    return {
        name: [value if value is not None and math.isfinite(value) else None for value in heads]
        for name, heads in layer.items()
    }


def probe_tables(folder: Path) -> list[ProbeTable]:
    """Every look into the memories of the run in this folder."""
    return [ProbeTable(look["step"], look["layers"]) for look in read_lines(folder / FILE)[0] if "layers" in look]


def read_probes(folder: Path) -> ProbeTable | None:
    """The last look, if there was any."""
    found = probe_tables(folder)
    return found[-1] if found else None
