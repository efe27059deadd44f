"""The replay buffer returns stored episodes, and episodes written after a checkpoint do not affect a resumed run."""

import numpy as np
import pytest
import torch

from hqlt_lab.agent.action_selection import RandomActor
from hqlt_lab.agent.replay_buffer import ReplayBuffer
from hqlt_lab.agent.rollout import collect_rollout
from hqlt_lab.errors import TrainingError
from hqlt_lab.registry import build
from tests.agent.conftest import MAZE


@pytest.fixture
def environment():
    return build("task", MAZE)


def random_episodes(environment, first, count):
    max_steps = environment.max_episode_steps
    actor = RandomActor(environment.make_rng("train", 0, first, count), 4, max_steps)
    return collect_rollout(environment.reset("train", 0, first, count), actor, max_steps)


def equal_batches(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_batches_consist_of_stored_episodes(tmp_path, environment):
    replay = ReplayBuffer(tmp_path, environment, 10_000)
    for first in range(0, 200, 8):  # the file has to grow twice
        replay.add_episodes(random_episodes(environment, first, 8))
    stored = random_episodes(environment, 0, 200)
    batch = replay.sample_batch(seed=3, update=5, rows=64)
    assert batch.actions.shape[1] == batch.lengths.max() == batch.observations.shape[1] - 1
    length = batch.observations.shape[1]
    prefixes = {observations[:length].tobytes() for observations in stored.observations}
    assert all(row.numpy().tobytes() in prefixes for row in batch.observations)


def test_only_the_latest_episodes_are_sampled(tmp_path, environment):
    replay = ReplayBuffer(tmp_path, environment, 5 * environment.max_episode_steps)
    replay.add_episodes(random_episodes(environment, 0, 40))
    marked = random_episodes(environment, 40, 5)
    replay.add_episodes(marked._replace(rewards=np.full_like(marked.rewards, 7)))
    rewards = torch.cat([replay.sample_batch(0, update, 16).rewards.flatten() for update in range(20)])
    assert (rewards == 7).all()


def test_batch_depends_only_on_seed_and_update(tmp_path, environment):
    replay = ReplayBuffer(tmp_path, environment, 10_000)
    replay.add_episodes(random_episodes(environment, 0, 50))
    batch = replay.sample_batch(0, 3, 8)
    assert equal_batches(batch, replay.sample_batch(0, 3, 8))
    assert not equal_batches(batch, replay.sample_batch(0, 4, 8)) and not equal_batches(
        batch, replay.sample_batch(1, 3, 8)
    )


def test_episodes_written_after_a_checkpoint_are_discarded(tmp_path, environment):
    replay = ReplayBuffer(tmp_path, environment, 10_000)
    replay.add_episodes(random_episodes(environment, 0, 30))
    replay.flush()
    before = replay.sample_batch(0, 0, 8)
    replay.add_episodes(random_episodes(environment, 30, 60))  # then the process dies
    resumed = ReplayBuffer(tmp_path, environment, 10_000, num_episodes=30)
    assert equal_batches(resumed.sample_batch(0, 0, 8), before)
    resumed.add_episodes(random_episodes(environment, 30, 60))
    assert equal_batches(resumed.sample_batch(0, 9, 8), replay.sample_batch(0, 9, 8))


def test_missing_replay_file_is_an_error(tmp_path, environment):
    with pytest.raises(TrainingError, match=r"the checkpoint needs 30 episodes, but the file has 0\. Start again"):
        ReplayBuffer(tmp_path, environment, 10_000, num_episodes=30)
