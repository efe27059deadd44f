"""T maze: the first observation shows which way to turn at the end of a corridor.

    step 0           the sign: north or south        visible only in the first observation
    corridor         `length` steps to the east      every cell looks the same
    junction         north or south                  the direction of the sign gives the reward, either ends the episode

The passive variant: no action is needed to see the sign.  A step without progress has a small cost.  The simplest
environment that tests memory: without memory half of the turns are wrong.

    task: {name: t_maze, length: 10}

Bakker 2001, "Reinforcement learning with long short-term memory"; Ni et al. 2023, arXiv:2307.03864.
"""

from dataclasses import dataclass

import numpy as np

from hqlt_lab.errors import ConfigError
from hqlt_lab.registry import register
from hqlt_lab.tasks._base import Split
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray
from hqlt_lab.tasks._environment import EAST, NORTH, SOUTH, WEST, Environment, RewardArray, UInt8Array, VectorEnv

SIGN_NORTH, SIGN_SOUTH, CORRIDOR, JUNCTION = range(4)  # index of the one in a one-hot observation
GROUND, WALL, AGENT, SIGN = (204, 204, 204), (25, 25, 25), (228, 148, 109), (0, 0, 255)


@register("task", "t_maze")
@dataclass(frozen=True, kw_only=True)
class TMaze(Environment):
    length: int = 10
    """Steps from the sign to the junction."""
    patience: int | None = None
    """Extra steps before the time limit; null: as many as the length of the corridor."""
    goal_reward: float = 1.0
    """Reward for the correct turn."""
    delay_reward: float | None = None
    """Reward for a step without progress: not east in the corridor, no turn at the junction; null: -1 / length."""

    max_observation = 1

    def __post_init__(self) -> None:
        if issues := self.check_minimums({"length": 1, "patience": 0, "eval_size": 1}):
            raise ConfigError(*issues)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return (4,)

    @property
    def max_episode_steps(self) -> int:
        return self.length + 1 + (self.length if self.patience is None else self.patience)

    @property
    def chance_level(self) -> float:
        return 50.0

    @property
    def step_penalty(self) -> float:
        return -1 / self.length if self.delay_reward is None else self.delay_reward

    def reset(self, split: Split, seed: int, first: int, count: int) -> "TMazeVectorEnv":
        return TMazeVectorEnv(self, self.make_rng(split, seed, first, count))


class TMazeVectorEnv(VectorEnv):
    """Parallel episodes of a T maze."""

    def __init__(self, environment: TMaze, rng: CounterRng) -> None:
        self.environment, self.elapsed_steps = environment, 0
        self.goal_is_south = rng.integers("sign", 0, 1)[:, 0].astype(bool)  # the correct turn
        self.column = np.zeros(len(self.goal_is_south), np.int64)
        self.turn_direction = self.column.copy()  # -1 north, 1 south
        self.done, self.success = np.zeros_like(self.goal_is_south), np.zeros_like(self.goal_is_south)

    def step(self, actions: IntArray) -> RewardArray:
        active = ~self.done
        self.elapsed_steps += 1
        at_junction = self.column == self.environment.length
        turning = active & at_junction & ((actions == NORTH) | (actions == SOUTH))
        correct = turning & ((actions == SOUTH) == self.goal_is_south)
        no_progress = active & ~turning & (at_junction | (actions != EAST))
        self.turn_direction += turning * np.where(actions == SOUTH, 1, -1)
        step = np.select([actions == EAST, actions == WEST], [1, -1], 0) * active
        self.column = np.clip(self.column + step, 0, self.environment.length)
        self.success = self.success | correct
        self.done = self.done | turning | (self.elapsed_steps == self.environment.max_episode_steps)
        rewards = correct * self.environment.goal_reward + no_progress * self.environment.step_penalty
        return rewards.astype(np.float32)

    def observation(self) -> UInt8Array:
        index = np.where(self.column == self.environment.length, JUNCTION, CORRIDOR)
        if self.elapsed_steps == 0:
            index = np.where(self.goal_is_south, SIGN_SOUTH, SIGN_NORTH)
        return np.eye(4, dtype=np.uint8)[index]

    def render(self) -> UInt8Array:
        rows, count = np.arange(len(self.goal_is_south)), len(self.goal_is_south)
        images = np.empty((count, 5, self.environment.length + 3, 3), np.uint8)
        images[:] = WALL
        images[:, 2, 1:-1] = GROUND
        images[:, 1:4, -2] = GROUND
        images[rows, 2 + np.where(self.goal_is_south, 1, -1), 1] = SIGN if self.elapsed_steps == 0 else WALL
        images[rows, 2 + self.turn_direction, 1 + self.column] = AGENT
        return images

    def expert_action(self) -> IntArray:
        return np.where(self.column < self.environment.length, EAST, np.where(self.goal_is_south, SOUTH, NORTH))
