"""outcome.json: the final result of a run.  It is written once, when the run ends."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from hqlt_lab.errors import StoreError
from hqlt_lab.files import NUMBER, check_numbers, check_types, read_json, write_atomic

OUTCOME_FILE = "outcome.json"
OutcomeStatus = Literal["done", "diverged"]
OUTCOME_TYPES: Mapping[str, tuple[type, ...]] = {
    "status": (str,), "step": (int,), "metrics": (dict,), "seconds": NUMBER, "tokens_per_second": NUMBER,
    "parameters": (int,), "state_bytes": (int,), "flops_per_token": NUMBER, "errors": (dict,),
    "repeatable": (bool, type(None)), "message": (str,),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The final result of a run.  A diverged run is final too: the same cell would diverge again, so no retry."""

    status: OutcomeStatus
    step: int  # optimizer steps taken, or environment steps; fewer than configured if `stop_at` was reached
    metrics: dict[str, float]  # of the tested weights: valid/..., test/..., and the last train/loss
    seconds: float  # total over all attempts
    tokens_per_second: float  # during training steps, padding included
    parameters: int
    state_bytes: int = 0  # recurrent state of one row after the longest training row
    flops_per_token: float = 0.0  # of training, matrix multiplications only, at the longest training row
    errors: dict[str, float] = field(default_factory=dict)  # standard error over test examples, by test metric
    repeatable: bool | None = None  # whether the first step, computed twice, was bitwise equal; None: not checked
    message: str = ""  # why it ended early, and warnings from the run
    warnings: list[str] = field(default_factory=list)  # analyses of the model that failed, one sentence each

    def write(self, folder: Path) -> None:
        write_atomic(folder / OUTCOME_FILE, json.dumps(asdict(self), indent=1) + "\n")


def read_outcome(folder: Path) -> Outcome | None:
    """Return the final result of the run in this folder, or None if the run has not ended.

    Raise StoreError if the file is damaged.
    """
    file = folder / OUTCOME_FILE
    if not file.exists():
        return None
    fields = read_json(file, dict, allow_nan=True)
    try:
        check_types(fields, OUTCOME_TYPES)
        for name in ("metrics", "errors"):
            check_numbers(fields.get(name, {}))
        return Outcome(**fields)
    except (ValueError, TypeError) as error:
        raise StoreError(
            f"{file}: the file is damaged ({error}). Remove it; the cell is tested again from its checkpoint."
        ) from error
