"""What MLflow has of a folder, noted in the folder: so the next process neither asks nor repeats."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from hqlt_lab.files import write

FILE = "mlflow.json"


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A run in MLflow, and how much of the folder it holds."""

    uri: str
    experiment: str  # MLflow's id
    run: str  # MLflow's id
    offset: int = 0  # bytes of the spool
    told: str = ""  # digest of all else that was sent last

    def note(self, folder: Path) -> None:
        """Write it down."""
        write(folder / FILE, json.dumps(asdict(self)) + "\n")


def read_sent(folder: Path) -> Sent | None:
    """What was noted; None if nothing was, or nothing that can be read."""
    try:
        with open(
            f"{folder}/{FILE}", "rb"
        ) as noted:  # of ten thousand cells at once, a Path takes longer than the file
            return Sent(**json.loads(noted.read()))
    except (OSError, ValueError, TypeError):
        return None
