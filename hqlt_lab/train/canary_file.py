"""Whether the first step came out the same twice, in a file of the run's folder.

    {"repeatable": false, "differs": ["loss", "head.weight"]}

Written once, when a run begins, and read by whoever goes on with the run or tells of it.  Readable without torch.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from hqlt_lab.files import write

FILE = "canary.json"
MOST = 3  # names in a sentence


@dataclass(frozen=True)
class Canary:
    """What `canary` found."""

    repeatable: bool  # every bit was the same, in all processes
    differs: list[str] = field(default_factory=list)  # in the first process: "loss", and parameters by their gradients

    def write(self, folder: Path) -> None:
        """For the rest of the run."""
        write(folder / FILE, json.dumps(asdict(self), indent=1) + "\n")

    @property
    def warning(self) -> str:
        """For those who asked for what repeats and did not get it."""
        some, more = ", ".join(self.differs[:MOST]), len(self.differs) - MOST
        where = f"{some} and {more} more" if more > 0 else some or "another process than the first"
        return f"trainer.deterministic is true, but the first step, computed twice, differs in {where}."


def read_canary(folder: Path) -> Canary | None:
    """What was found in this folder's run; None: nobody looked."""
    file = folder / FILE
    return Canary(**json.loads(file.read_text())) if file.exists() else None
