"""The states that a cell of a study can be in."""

from typing import Literal

CellState = Literal["waiting", "running", "done", "failed", "diverged", "pruned", "superseded"]
# Nothing more is written into the folder of a cell in one of these states.
TERMINAL_STATES: tuple[CellState, ...] = ("done", "failed", "diverged", "pruned", "superseded")
# no further attempt will be made in this generation
SETTLED_STATES: tuple[CellState, ...] = ("done", "failed", "diverged", "pruned")
# settled without a result
UNSUCCESSFUL_STATES: tuple[CellState, ...] = ("failed", "diverged")
# settled without a result, or stopped before its end because its results were poor
LOST_STATES: tuple[CellState, ...] = (*UNSUCCESSFUL_STATES, "pruned")
