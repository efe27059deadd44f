"""Which rows are whose: the batch of a step is a function of (seed, step), cut over processes and pieces.

    rows of step s      s * batch_size ... (s + 1) * batch_size - 1
    process r of W      the r-th of W equal runs of them
    piece m of M        the m-th of M equal runs of those

Nothing has to be remembered to go on, and no row is read twice or left out, whoever computes.
"""

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.tasks._base import Task


class Piece(NamedTuple):
    """What one process computes at once."""

    step: int
    number: int  # of the piece within the step
    tokens: Tensor  # [B, T]
    labels: Tensor  # [B, T]
    due: Tensor  # how many labels this process has in all pieces of the step


class Pieces:
    """The pieces of one process from some step on, without end."""

    def __init__(self, task: Task, cell: Cell, start: int, rank: int, world: int) -> None:
        self.task, self.seed, self.start, self.rank = task, cell.seed, start, rank
        self.rows, self.pieces = cell.train.batch_size, cell.train.accumulate
        self.share = self.rows // world

    def __iter__(self) -> Iterator[Piece]:
        step = self.start
        while True:
            yield from self.of(step)
            step += 1

    def of(self, step: int) -> Iterator[Piece]:
        """The pieces of one step."""
        batch = self.task.examples("train", self.seed, step * self.rows + self.rank * self.share, self.share)
        due = (batch.labels >= 0).sum()
        cut = zip(batch.tokens.chunk(self.pieces), batch.labels.chunk(self.pieces), strict=True)
        for number, (tokens, labels) in enumerate(cut):
            yield Piece(step, number, tokens, labels, due)


def check_shares(cell: Cell, task: Task) -> None:
    """Complain about a batch or an evaluation set that does not go round."""
    rows, pieces = cell.train.batch_size, cell.train.accumulate
    devices, nodes = cell.trainer.devices, cell.trainer.nodes
    if rows % (devices * nodes * pieces):
        raise ConfigError(
            f"train.batch_size: {rows} sequences do not divide over {devices} devices on {nodes} nodes, "
            f"in {pieces} pieces each. Use a multiple of {devices * nodes * pieces}."
        )
    if task.eval_size < devices * nodes:
        raise ConfigError(
            f"task.eval_size: {task.eval_size} sequences do not go round {devices * nodes} devices. Use more of them."
        )
