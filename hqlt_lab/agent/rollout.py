"""Episodes as arrays: observations o_0 ... o_T, and for each step t the action taken at o_t and its reward."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hqlt_lab.tasks._counter_rng import IntArray
from hqlt_lab.tasks._environment import BoolArray, RewardArray, UInt8Array, VectorEnv

Actor = Callable[[UInt8Array], IntArray]  # observations [N, *shape] -> actions [N]


class Episodes(NamedTuple):
    """A batch of episodes.  Values beyond the length of an episode are meaningless."""

    observations: UInt8Array  # [N, T + 1, *shape]
    actions: UInt8Array  # [N, T]
    rewards: RewardArray  # [N, T]
    lengths: NDArray[np.int32]  # [N] steps
    success: BoolArray  # [N]

    @property
    def returns(self) -> NDArray[np.float64]:
        """Undiscounted return of each episode."""
        return self.rewards.sum(1, dtype=np.float64)

    @property
    def total_steps(self) -> int:
        """Number of steps of all episodes."""
        return int(self.lengths.sum())


def collect_rollout(env: VectorEnv, actor: Actor, max_steps: int) -> Episodes:
    """Act until all episodes of the vector environment are done."""
    first = env.observation()
    count = len(first)
    observations = np.zeros((count, max_steps + 1, *first.shape[1:]), np.uint8)
    actions, rewards = np.zeros((count, max_steps), np.uint8), np.zeros((count, max_steps), np.float32)
    lengths = np.zeros(count, np.int32)
    observations[:, 0] = first
    while not env.done.all():
        t = env.elapsed_steps
        lengths += ~env.done
        actions[:, t] = chosen = actor(observations[:, t])
        rewards[:, t] = env.step(chosen)
        observations[:, t + 1] = env.observation()
    return Episodes(observations, actions, rewards, lengths, env.success.copy())
