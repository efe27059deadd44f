"""A cell as it stands: what tables and pages are made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hqlt_lab.track.card import State
from hqlt_lab.train.harness_file import answers_in, numbers_of, shown

SETTLED = ("done", "failed", "diverged", "pruned")  # nothing more will come of it


def with_answers(outcome: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """What came of a cell, and what it answered to lm-eval afterwards."""
    numbers = numbers_of(shown(answers_in(folder)))
    if not numbers:
        return dict(outcome)
    values = {name: number.value for name, number in numbers.items()}
    errors = {name: number.error for name, number in numbers.items() if number.error is not None}
    return dict(outcome) | {
        "metrics": {**outcome.get("metrics", {}), **values},
        "errors": {**outcome.get("errors", {}), **errors},
        "made_by": {name: number.made_by for name, number in numbers.items()},
    }


@dataclass(frozen=True, kw_only=True)
class Record:
    """One cell: which it is, how far it is, and what came of it."""

    key: str
    arm: str  # the arm's title: its name and crossed levels
    seed: int
    levels: Mapping[str, Any] = field(default_factory=dict)  # crossed path -> value
    point: Mapping[str, Any] = field(default_factory=dict)  # tuned path -> value
    counts: bool = True  # False: it only served to find the point, and is not reported
    state: State = "waiting"
    attempts: int = 0
    why: str = ""  # what went wrong, or why it ended early
    step: int = 0  # optimiser steps taken
    metrics: Mapping[str, float] = field(default_factory=dict)  # valid/..., test/..., train/loss
    seconds: float = 0.0
    tokens_per_second: float = 0.0
    parameters: int = 0
    state_bytes: int = 0  # that one row carries on after the longest training row
    flops_per_token: float = 0.0  # of training
    errors: Mapping[str, float] = field(default_factory=dict)  # standard error over test examples, by test metric
    made_by: Mapping[str, str] = field(default_factory=dict)  # the protocol of each answer to lm-eval, by metric
    repeatable: bool | None = None  # whether the first step came out the same twice; None: nobody looked
    code: Mapping[str, str] = field(default_factory=dict)  # source hashes: "lab", and each part as "kind name"
    changed: tuple[str, ...] = ()  # which of these sources are others today
    folder: Path = Path()  # its checkpoint, curves and log
    run: str | None = None  # its MLflow run
