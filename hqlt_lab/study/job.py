"""A cell under way, as its coordinator sees it, and as the tracker is told of it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.study.attempts import Attempt
from hqlt_lab.study.place import Place
from hqlt_lab.study.record import Record
from hqlt_lab.track import spool
from hqlt_lab.track.card import CellCard, cell_card


class Tracker(Protocol):
    """Someone who keeps curves: `track.courier`."""

    def tell(self, card: CellCard) -> None: ...


@dataclass
class Job:
    """A cell under way."""

    place: Place
    cell: Cell
    attempt: Attempt
    folder: Path
    step: int = 0
    latest: dict[str, float] = field(default_factory=dict)
    judged: dict[int, float] = field(default_factory=dict)  # validations of earlier attempts, which count as well
    over: bool = False  # it ended, whether or not the ledger could be told

    def curve(self, metric: str) -> dict[int, float]:
        """What is known of a metric, by step."""
        points, _ = spool.read(self.folder)
        return {point.step: point.metrics[metric] for point in points if metric in point.metrics}


def card_of(cell: Cell, record: Record) -> CellCard:
    """A cell for the tracker, by the name of its folder: when it was forgotten and trained again, it is another one."""
    return cell_card(record.folder.name, cell, record.folder, record.state, record.why, record.code)
