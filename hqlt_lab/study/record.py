"""A cell as it stands: what tables and pages are made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hqlt_lab.track.card import State

SETTLED = ("done", "failed", "diverged", "pruned")  # nothing more will come of it


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
    repeatable: bool | None = None  # whether the first step came out the same twice; None: nobody looked
    code: Mapping[str, str] = field(default_factory=dict)  # source hashes: "lab", and each part as "kind name"
    changed: tuple[str, ...] = ()  # which of these sources are others today
    folder: Path = Path()  # its checkpoint, curves and log
    run: str | None = None  # its MLflow run
