"""Executor interface: how the coordinator starts, monitors and stops training jobs, whether local or on a cluster.

    can_start  ->  start_cell  ->  poll_events: metrics, metrics, ..., and finally one of
                                   ended, pruned, interrupted, failed, blocked, locked, lost

An attempt that was interrupted, blocked by its machine (a full disk), or found its folder locked by another process, is
not caused by the cell and does not count as a retry.  An attempt that failed or was lost does.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from hqlt_lab.experiment.cell import Cell

STOP_TIMEOUT = 30.0  # seconds in which running cells may save a checkpoint when the study is stopped
MAX_STARTUP_FAILURES = 3  # workers that may die before their first message


class CellEvent(NamedTuple):
    """A message about one cell: new metrics, or how its attempt ended."""

    key: str
    kind: str  # metrics, ended, pruned, interrupted, failed, blocked, locked, lost
    payload: dict[str, Any]


class Executor(Protocol):
    """Runs cells.  Launchers create executors with `make_executor(cells)`."""

    workers: int  # cells trained at once, estimated when the executor is created

    def can_start(self, cell: Cell) -> bool:
        """Return whether the cell could start now.

        An idle executor that trains cells itself must return True, otherwise the study would never make progress.
        """

    def start_cell(self, key: str, cell: Cell, folder: Path, attempt: int) -> None:
        """Start an attempt at a cell.  Requires `can_start(cell)`."""

    def poll_events(self, timeout: float) -> Iterable[CellEvent]:
        """Return the events since the last call; wait up to `timeout` seconds for the first."""

    def request_prune(self, key: str) -> None:
        """Request the worker of a cell to stop because of bad results; a `pruned` event follows."""

    def interrupt_all(self) -> None:
        """Request every worker to save a checkpoint and stop, each of them once; events follow."""

    def kill_all(self) -> None:
        """Kill all workers without waiting for checkpoints; events follow as usual."""

    def close(self) -> None:
        """Shut down all workers and release the resources."""
