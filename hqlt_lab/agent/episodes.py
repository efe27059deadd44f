"""What was lived, as arrays: observations o_0 ... o_T, and for each step t the action at o_t and the reward for it."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hqlt_lab.tasks._counter import Ints
from hqlt_lab.tasks._world import Bools, Bytes, Rewards, Scene

Actor = Callable[[Bytes], Ints]  # what is seen in each episode [N, *shape] -> what is done in each [N]


class Episodes(NamedTuple):
    """Some of them; what lies behind an episode's length means nothing."""

    observations: Bytes  # [N, T + 1, *shape]
    actions: Bytes  # [N, T]
    rewards: Rewards  # [N, T]
    lengths: NDArray[np.int32]  # [N] steps
    success: Bools  # [N]

    @property
    def returns(self) -> NDArray[np.float64]:
        """The sum of each episode's rewards, undiscounted."""
        return self.rewards.sum(1, dtype=np.float64)

    @property
    def steps(self) -> int:
        """Of all of them."""
        return int(self.lengths.sum())


def live(scene: Scene, actor: Actor, horizon: int) -> Episodes:
    """Act until all episodes of the scene have ended."""
    seen = scene.observe()
    count = len(seen)
    observations = np.zeros((count, horizon + 1, *seen.shape[1:]), np.uint8)
    actions, rewards = np.zeros((count, horizon), np.uint8), np.zeros((count, horizon), np.float32)
    lengths = np.zeros(count, np.int32)
    observations[:, 0] = seen
    while not scene.ended.all():
        time = scene.time
        lengths += ~scene.ended
        actions[:, time] = done = actor(observations[:, time])
        rewards[:, time] = scene.act(done)
        observations[:, time + 1] = scene.observe()
    return Episodes(observations, actions, rewards, lengths, scene.success.copy())
