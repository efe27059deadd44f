"""The file of episodes: nothing is lost, and what a checkpoint does not know of changes nothing."""

import numpy as np
import pytest
import torch

from hqlt_lab.agent.acting import Wandering
from hqlt_lab.agent.episodes import live
from hqlt_lab.agent.replay import Replay
from hqlt_lab.errors import TrainingError
from hqlt_lab.registry import build
from tests.agent.conftest import MAZE


@pytest.fixture
def world():
    return build("task", MAZE)


def lived(world, first, count):
    draws = world.draws("train", 0, first, count)
    return live(world.begin("train", 0, first, count), Wandering(draws, 4, world.horizon), world.horizon)


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_batches_are_episodes_that_were_lived(tmp_path, world):
    replay = Replay(tmp_path, world, 10_000)
    for first in range(0, 200, 8):  # it has to grow twice
        replay.add(lived(world, first, 8))
    all_of_them = lived(world, 0, 200)
    batch = replay.batch(seed=3, update=5, rows=64)
    assert batch.actions.shape[1] == batch.lengths.max() == batch.observations.shape[1] - 1
    known = {row.tobytes() for row in all_of_them.observations}
    for row in range(64):
        whole = np.zeros_like(all_of_them.observations[0])
        length = batch.observations.shape[1]
        whole[:length] = batch.observations[row].numpy()
        candidates = [one for one in all_of_them.observations if np.array_equal(one[:length], whole[:length])]
        assert candidates and candidates[0].tobytes() in known


def test_only_the_latest_are_drawn(tmp_path, world):
    replay = Replay(tmp_path, world, 5 * world.horizon)
    replay.add(lived(world, 0, 40))
    marked = lived(world, 40, 5)
    replay.add(marked._replace(rewards=np.full_like(marked.rewards, 7)))
    drawn = torch.cat([replay.batch(0, update, 16).rewards.flatten() for update in range(20)])
    assert (drawn == 7).all()


def test_a_batch_is_a_function_of_seed_and_update(tmp_path, world):
    replay = Replay(tmp_path, world, 10_000)
    replay.add(lived(world, 0, 50))
    assert same(replay.batch(0, 3, 8), replay.batch(0, 3, 8))
    assert not same(replay.batch(0, 3, 8), replay.batch(0, 4, 8)) and not same(
        replay.batch(0, 3, 8), replay.batch(1, 3, 8)
    )


def test_what_was_written_after_a_checkpoint_is_forgotten(tmp_path, world):
    replay = Replay(tmp_path, world, 10_000)
    replay.add(lived(world, 0, 30))
    replay.flush()
    before = replay.batch(0, 0, 8)
    replay.add(lived(world, 30, 60))  # and then the power was cut
    again = Replay(tmp_path, world, 10_000, count=30)
    assert same(again.batch(0, 0, 8), before)
    again.add(lived(world, 30, 60))
    assert same(again.batch(0, 9, 8), replay.batch(0, 9, 8))


def test_a_file_that_is_gone_is_told(tmp_path, world):
    with pytest.raises(
        TrainingError, match=r"30 episodes belong to the checkpoint beside it, and 0 are here\. Begin anew"
    ):
        Replay(tmp_path, world, 10_000, count=30)
