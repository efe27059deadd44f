"""Those who train, as the coordinator sees them, whatever they are: processes of this machine, tasks of a cluster.

    room_for  ->  start  ->  events: point, point, ..., and in the end one of
                             ended, pruned, interrupted, failed, blocked, lost

An attempt that was interrupted, or blocked by its machine, is not the cell's fault, and does not count; one that failed
or was lost does.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from hqlt_lab.experiment.cell import Cell

PATIENCE = 30.0  # seconds a worker gets to save, when all are asked to stop
STILLBORN = 3  # workers that may die before their first word


class Event(NamedTuple):
    """What happened to a cell."""

    key: str
    word: str  # point, ended, pruned, interrupted, failed, blocked, lost
    told: dict[str, Any]


class Hands(Protocol):
    """A launcher's `crew(cells)` gives them."""

    workers: int  # cells at once, as far as can be said in advance

    def room_for(self, cell: Cell) -> bool:
        """Whether it could begin now; with nobody at work there must be, or everything would end here."""

    def start(self, key: str, cell: Cell, folder: Path, attempt: int) -> None:
        """Give a cell to someone; there must be room for it."""

    def events(self, timeout: float) -> Iterable[Event]:
        """What happened since the last time, waiting for it as long as allowed."""

    def give_up(self, key: str) -> None:
        """Ask the worker of a cell to stop; its event will follow."""

    def interrupt(self) -> None:
        """Ask all to save and stop, each of them once; their events will follow."""

    def kill(self) -> None:
        """Wait for nobody; events follow all the same."""

    def close(self) -> None:
        """Send everyone home."""
