"""Whole episodes in a file that only grows: a checkpoint needs to remember no more than how many there were.

    record i       episode i of the run: observations, actions, rewards, length, success
    a batch        episodes drawn evenly from the latest ones, by (seed, number of the update)

A run that was killed has written more episodes than its checkpoint knows of.  They are forgotten, lived again, and the
same; nothing older was lost to them, which in a ring it would have been.  The file is mapped, not read.
"""

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hqlt_lab.agent.episodes import Episodes
from hqlt_lab.agent.learning import Batch
from hqlt_lab.errors import TrainingError
from hqlt_lab.tasks._counter import Draws
from hqlt_lab.tasks._world import World

FILE = "replay.bin"
FIRST_ROOM = 64  # episodes; then twice as many whenever it is full


class Replay:
    """The episodes of one run."""

    def __init__(self, folder: Path, world: World, steps: int, count: int = 0) -> None:
        self.file, self.count = folder / FILE, count
        self.latest = max(1, steps // world.horizon)  # episodes that are drawn from
        self.record = record_of(world)
        there = self.file.stat().st_size // self.record.itemsize if self.file.exists() else 0
        if there < count:
            raise TrainingError(
                f"{self.file}: {count} episodes belong to the checkpoint beside it, and {there} are here. "
                "Begin anew: remove the folder, or use --again."
            )
        self.episodes = self.mapped(max(FIRST_ROOM, there))

    def mapped(self, room: int) -> np.memmap:
        """The file, with room for so many on the disk: to write where it has none would end the process."""
        self.file.touch()
        with self.file.open("r+b") as file:
            file.truncate(room * self.record.itemsize)
            if hasattr(os, "posix_fallocate"):  # not on Apple's machines
                os.posix_fallocate(file.fileno(), 0, room * self.record.itemsize)
        return np.memmap(self.file, self.record, "r+", shape=(room,))

    def add(self, lived: Episodes) -> None:
        """Write these behind the others."""
        end = self.count + len(lived.lengths)
        while end > len(self.episodes):
            self.episodes.flush()
            self.episodes = self.mapped(2 * len(self.episodes))
        for name, values in lived._asdict().items():
            self.episodes[name][self.count : end] = values
        self.count = end

    def flush(self) -> None:
        """Wait until the disk has them: before a checkpoint counts on it."""
        self.episodes.flush()

    def batch(self, seed: int, update: int, rows: int) -> Batch:
        """What an update learns from, as long as the longest of its episodes."""
        draws = Draws(f"replay/{seed}", update, 1)
        chosen = draws.integers("episode", max(0, self.count - self.latest), self.count - 1, rows)[0]
        some = self.episodes[chosen]
        longest = int(some["lengths"].max())
        return Batch(
            whole(some["observations"][:, : longest + 1]),
            whole(some["actions"][:, :longest]).long(),
            whole(some["rewards"][:, :longest]),
            whole(some["lengths"]).long(),
        )


def whole(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values))


def record_of(world: World) -> np.dtype:
    """What an episode takes, by the names of `Episodes`."""
    steps = world.horizon
    return np.dtype(
        [
            ("observations", np.uint8, (steps + 1, *world.shape)),
            ("actions", np.uint8, (steps,)),
            ("rewards", np.float32, (steps,)),
            ("lengths", np.int32),
            ("success", np.bool_),
        ]
    )
