"""What computes a run's memories, in a file of its folder; written at every start, since a run may go on elsewhere.

    {"device": "cuda", "precision": "bf16-mixed", "scan": "fla", "scan_why": "the fastest there is for this", ...}

Readable without torch.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.files import write

if TYPE_CHECKING:
    from hqlt_lab.model.choices import Choices

FILE = "ops.json"


def write_ops(folder: Path, device: str, precision: str, layers: "Sequence[Choices]") -> None:
    """What was chosen for each layer; layers that differ are told apart by a plus sign."""
    told = {"device": device, "precision": precision}
    for memory in ("scan", "attention"):
        chosen = sorted({getattr(layer, memory) for layer in layers})
        told[memory] = "+".join(dict.fromkeys(choice.name for choice in chosen))
        told[f"{memory}_why"] = "; ".join(dict.fromkeys(choice.why for choice in chosen))
    write(folder / FILE, json.dumps(told, indent=1) + "\n")


def read_ops(folder: Path) -> dict[str, str]:
    """What the latest start of this folder's run has chosen; empty before the first."""
    file = folder / FILE
    return json.loads(file.read_text()) if file.exists() else {}
