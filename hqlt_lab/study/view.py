"""Someone who watches a study."""

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.study.pace import Pace
from hqlt_lab.study.record import Record


class View:
    """What the coordinator tells.  By itself it says nothing; who wants to see something, overrides."""

    def begin(self, pace: Pace, settled: int, total: int) -> None:
        """What there is to do, and how many cells are settled already, of how many."""

    def started(self, record: Record, cell: Cell) -> None:
        """An attempt at a cell begins."""

    def point(self, key: str, step: int, metrics: dict[str, float]) -> None:
        """Some points of its curves."""

    def settled(self, record: Record) -> None:
        """The attempt is over; the cell may wait for another one."""

    def away(self, sentence: str) -> None:
        """The store cannot be reached, and is waited for."""

    def stopping(self) -> None:
        """Somebody wants it to end."""

    def evaluating(self, what: str, done: int, total: int) -> None:
        """Trained, a cell is asked a task of lm-eval: rows that are done, and how many there are."""

    def look(self) -> None:
        """A quarter of a second has passed."""
