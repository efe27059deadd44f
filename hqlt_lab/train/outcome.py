"""What came of a run, in a file that says it for good."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from hqlt_lab.files import read_json, write

FILE = "outcome.json"
Status = Literal["done", "diverged"]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of a run.  Diverged is an end too: the same cell would diverge again, so it is not tried again."""

    status: Status
    step: int  # optimiser steps taken, or steps in a world; fewer than asked for where `stop_at` was reached
    metrics: dict[str, float]  # of the weights that were tested: valid/..., test/..., and the last train/loss
    seconds: float  # in all, over every attempt
    tokens_per_second: float  # while learning, padding included
    parameters: int
    state_bytes: int = 0  # that one row carries on after the longest training row
    flops_per_token: float = 0.0  # of training, products only, at the longest training row
    errors: dict[str, float] = field(default_factory=dict)  # standard error over test examples, by test metric
    repeatable: bool | None = None  # whether the first step came out the same twice; None: nobody looked
    message: str = ""  # why it ended early, and what went wrong on the way

    def write(self, folder: Path) -> None:
        """For the next time that someone asks."""
        write(folder / FILE, json.dumps(asdict(self), indent=1) + "\n")


def read_outcome(folder: Path) -> Outcome | None:
    """What came of the run in this folder, if it has ended."""
    file = folder / FILE
    return Outcome(**read_json(file)) if file.exists() else None
