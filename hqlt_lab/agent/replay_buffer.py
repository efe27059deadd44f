"""Replay buffer: complete episodes in an append-only file, so that a checkpoint stores only their number.

    record i       episode i of the run: observations, actions, rewards, length, success
    a batch        episodes sampled uniformly from the latest ones, by (seed, number of the update)

A killed run may have written more episodes than its checkpoint counts.  After resuming they are collected again with
identical results and overwritten.  Older episodes are still in the file, as they would not be in a ring buffer.  The
file is memory-mapped.
"""

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hqlt_lab.agent.rollout import Episodes
from hqlt_lab.agent.sac import EpisodeBatch
from hqlt_lab.errors import TrainingError
from hqlt_lab.tasks._counter_rng import CounterRng
from hqlt_lab.tasks._environment import Environment

REPLAY_FILE = "replay.bin"
INITIAL_CAPACITY = 64  # episodes; doubled whenever the file is full


class ReplayBuffer:
    """Stores the episodes of one run and samples batches of them."""

    def __init__(self, folder: Path, environment: Environment, capacity_steps: int, num_episodes: int = 0) -> None:
        self.file, self.num_episodes = folder / REPLAY_FILE, num_episodes
        # only this many latest episodes are sampled
        self.sampled_episodes = max(1, capacity_steps // environment.max_episode_steps)
        self.record_dtype = episode_dtype(environment)
        stored = self.file.stat().st_size // self.record_dtype.itemsize if self.file.exists() else 0
        if stored < num_episodes:
            raise TrainingError(
                f"{self.file}: the checkpoint needs {num_episodes} episodes, but the file has {stored}. Start again: "
                "remove the folder, or use --again."
            )
        self.episodes = self.map_file(max(INITIAL_CAPACITY, stored))

    def map_file(self, capacity: int) -> np.memmap:
        """Map the file with space for `capacity` episodes.

        The space is allocated on disk, because writing to a mapped page without space would kill the process.
        """
        self.file.touch()
        with self.file.open("r+b") as file:
            file.truncate(capacity * self.record_dtype.itemsize)
            if hasattr(os, "posix_fallocate"):  # not available on macOS
                os.posix_fallocate(file.fileno(), 0, capacity * self.record_dtype.itemsize)
        return np.memmap(self.file, self.record_dtype, "r+", shape=(capacity,))

    def add_episodes(self, episodes: Episodes) -> None:
        """Append episodes."""
        end = self.num_episodes + len(episodes.lengths)
        while end > len(self.episodes):
            self.episodes.flush()
            self.episodes = self.map_file(2 * len(self.episodes))
        for name, values in episodes._asdict().items():
            self.episodes[name][self.num_episodes : end] = values
        self.num_episodes = end

    def flush(self) -> None:
        """Wait until all episodes are on disk.  Must be called before a checkpoint is written."""
        self.episodes.flush()

    def sample_batch(self, seed: int, update: int, rows: int) -> EpisodeBatch:
        """Sample the episodes of an update, cut to the longest of them."""
        rng = CounterRng(f"replay/{seed}", update, 1)
        oldest = max(0, self.num_episodes - self.sampled_episodes)
        records = self.episodes[rng.integers("episode", oldest, self.num_episodes - 1, rows)[0]]
        longest = int(records["lengths"].max())
        return EpisodeBatch(
            to_tensor(records["observations"][:, : longest + 1]),
            to_tensor(records["actions"][:, :longest]).long(),
            to_tensor(records["rewards"][:, :longest]),
            to_tensor(records["lengths"]).long(),
        )


def to_tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values))


def episode_dtype(environment: Environment) -> np.dtype:
    """Return the dtype of one record, with the field names of `Episodes`."""
    steps = environment.max_episode_steps
    return np.dtype(
        [
            ("observations", np.uint8, (steps + 1, *environment.observation_shape)),
            ("actions", np.uint8, (steps,)),
            ("rewards", np.float32, (steps,)),
            ("lengths", np.int32),
            ("success", np.bool_),
        ]
    )
