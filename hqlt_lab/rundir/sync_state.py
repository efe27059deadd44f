"""mlflow.json: how much of a study's or cell's folder has been sent to MLflow.

The next process reads it instead of querying MLflow, and sends nothing twice.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from hqlt_lab.errors import StoreError
from hqlt_lab.files import check_types, read_json, write_atomic

SYNC_STATE_FILE = "mlflow.json"
SYNC_STATE_TYPES = {"uri": (str,), "experiment": (str,), "run": (str,), "offset": (int,), "digest": (str,)}


@dataclass(frozen=True, kw_only=True)
class SyncState:
    """The MLflow run of a folder, and how much of the folder it holds."""

    uri: str
    experiment: str  # MLflow's id
    run: str  # MLflow's id
    offset: int = 0  # bytes of metrics.jsonl that were sent
    digest: str = ""  # digest of everything else that was sent

    def write(self, folder: Path) -> None:
        write_atomic(folder / SYNC_STATE_FILE, json.dumps(asdict(self)) + "\n")


def read_sync_state(folder: Path) -> SyncState | None:
    """Return the stored state, or None if there is none or it is unreadable."""
    try:
        # a string: reading ten thousand cells, creating a Path takes longer than reading the file
        fields = read_json(f"{folder}/{SYNC_STATE_FILE}", dict)
        check_types(fields, SYNC_STATE_TYPES)
        return SyncState(**fields)
    except (OSError, StoreError, ValueError, TypeError):
        return None
