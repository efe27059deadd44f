"""Split the batch of a step over processes and micro-batches.

    rows of step s          s * batch_size ... (s + 1) * batch_size - 1; of a finite training set `tasks._row_order`
    rank r of W             the r-th of W equal, contiguous parts of them
    micro-batch m of M      the m-th of M equal, contiguous parts of those

The batch is a function of (seed, step), so a resumed run needs no data loader state, and every row is used exactly once
whatever the number of processes.
"""

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.tasks._base import Task


class MicroBatch(NamedTuple):
    """The rows of one forward and backward pass in one process."""

    step: int
    micro_step: int  # index within the step
    tokens: Tensor  # [B, T]
    labels: Tensor  # [B, T]
    num_labels: Tensor  # number of labels of this process in all micro-batches of the step


class MicroBatches:
    """Endless iterable over the micro-batches of one process, beginning with those of `start_step`."""

    def __init__(self, task: Task, cell: Cell, start_step: int, rank: int, world_size: int) -> None:
        self.task, self.seed, self.start_step, self.rank = task, cell.seed, start_step, rank
        self.batch_size, self.accumulate = cell.train.batch_size, cell.train.accumulate
        self.world_size = world_size

    def __iter__(self) -> Iterator[MicroBatch]:
        step = self.start_step
        while True:
            yield from self.split_step(step)
            step += 1

    def split_step(self, step: int) -> Iterator[MicroBatch]:
        """Yield the micro-batches of one step."""
        batch = self.task.get_train_batch(self.seed, step, self.batch_size, self.rank, self.world_size)
        num_labels = (batch.labels >= 0).sum()
        chunks = zip(batch.tokens.chunk(self.accumulate), batch.labels.chunk(self.accumulate), strict=True)
        for micro_step, (tokens, labels) in enumerate(chunks):
            yield MicroBatch(step, micro_step, tokens, labels, num_labels)


def check_batch_division(cell: Cell, task: Task) -> None:
    """Raise ConfigError if the batch does not divide over all processes and micro-batches, or a process has no rows."""
    rows, micro_batches = cell.train.batch_size, cell.train.accumulate
    devices, nodes = cell.trainer.devices, cell.trainer.nodes
    if rows % (devices * nodes * micro_batches):
        raise ConfigError.at(
            "train.batch_size",
            "batch_not_divisible",
            f"{rows} is not divisible by devices x nodes x micro-batches = {devices} x {nodes} x {micro_batches}.",
            f"Use a multiple of {devices * nodes * micro_batches}.",
        )
    parts = devices * nodes * micro_batches
    if uneven := [size for size in task.train_batch_sizes(rows) if size % parts]:
        raise ConfigError.at(
            "train.batch_size",
            "last_batch_not_divisible",
            f"the last batch of an epoch has {uneven[0]} rows, which is not divisible by devices x nodes x "
            f"micro-batches = {parts}.",
            "Choose task.rows or the rows of the segments as multiples of the batch size.",
        )
    if task.eval_size < devices * nodes:
        message = f"{task.eval_size} sequences are fewer than the {devices * nodes} devices."
        raise ConfigError.at("task.eval_size", "fewer_rows_than_devices", message, "Use more sequences.")
