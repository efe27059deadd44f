"""T maze: the first observation says which way to turn, and the turn comes at the end of a corridor.

    step 0           the sign: north or south        seen once, at the beginning
    corridor         `length` steps to the east      every cell looks the same
    junction         north or south                  the way that was shown gives the reward, either ends the episode

The passive form: nothing has to be done to see the sign.  A step that does not lead on costs a little.  The smallest
test of a memory in a world: without one, half of the turns are wrong.

    task: {name: t_maze, length: 10}

Bakker 2001, "Reinforcement learning with long short-term memory"; Ni et al. 2023, arXiv:2307.03864.
"""

from dataclasses import dataclass

import numpy as np

from hqlt_lab.errors import ConfigError
from hqlt_lab.registry import register
from hqlt_lab.tasks._base import Split
from hqlt_lab.tasks._counter import Draws, Ints
from hqlt_lab.tasks._world import EAST, NORTH, SOUTH, WEST, Bytes, Rewards, Scene, World

SIGN_NORTH, SIGN_SOUTH, CORRIDOR, JUNCTION = range(4)  # what is seen: one of these
GROUND, WALL, AGENT, SIGN = (204, 204, 204), (25, 25, 25), (228, 148, 109), (0, 0, 255)


@register("task", "t_maze")
@dataclass(frozen=True, kw_only=True)
class TMaze(World):
    length: int = 10
    """Steps from the sign to the junction."""
    patience: int | None = None
    """Steps that may be lost on the way; null: as many as the corridor is long."""
    goal_reward: float = 1.0
    """For the right turn."""
    delay_reward: float | None = None
    """For a step that does not lead on: not to the east in the corridor, no turn at the junction; null: -1 / length."""

    brightest = 1

    def __post_init__(self) -> None:
        if wrong := self.too_small({"length": 1, "patience": 0, "eval_size": 1}):
            raise ConfigError("\n".join(wrong))

    @property
    def shape(self) -> tuple[int, ...]:
        return (4,)

    @property
    def horizon(self) -> int:
        return self.length + 1 + (self.length if self.patience is None else self.patience)

    @property
    def chance(self) -> float:
        return 50.0

    @property
    def delay(self) -> float:
        return -1 / self.length if self.delay_reward is None else self.delay_reward

    def begin(self, split: Split, seed: int, first: int, count: int) -> "MazeScene":
        return MazeScene(self, self.draws(split, seed, first, count))


class MazeScene(Scene):
    """Episodes of one maze."""

    def __init__(self, world: TMaze, draws: Draws) -> None:
        self.world, self.time = world, 0
        self.south = draws.integers("sign", 0, 1)[:, 0].astype(bool)  # the way to turn
        self.column = np.zeros(len(self.south), np.int64)
        self.turned = self.column.copy()  # -1 north, 1 south
        self.ended, self.success = np.zeros_like(self.south), np.zeros_like(self.south)

    def act(self, actions: Ints) -> Rewards:
        acting = ~self.ended
        self.time += 1
        there = self.column == self.world.length
        turning = acting & there & ((actions == NORTH) | (actions == SOUTH))
        right = turning & ((actions == SOUTH) == self.south)
        lost = acting & ~turning & (there | (actions != EAST))
        self.turned += turning * np.where(actions == SOUTH, 1, -1)
        step = np.select([actions == EAST, actions == WEST], [1, -1], 0) * acting
        self.column = np.clip(self.column + step, 0, self.world.length)
        self.success = self.success | right
        self.ended = self.ended | turning | (self.time == self.world.horizon)
        return (right * self.world.goal_reward + lost * self.world.delay).astype(np.float32)

    def observe(self) -> Bytes:
        seen = np.where(self.column == self.world.length, JUNCTION, CORRIDOR)
        if self.time == 0:
            seen = np.where(self.south, SIGN_SOUTH, SIGN_NORTH)
        return np.eye(4, dtype=np.uint8)[seen]

    def picture(self) -> Bytes:
        rows, count = np.arange(len(self.south)), len(self.south)
        drawn = np.empty((count, 5, self.world.length + 3, 3), np.uint8)
        drawn[:] = WALL
        drawn[:, 2, 1:-1] = GROUND
        drawn[:, 1:4, -2] = GROUND
        drawn[rows, 2 + np.where(self.south, 1, -1), 1] = SIGN if self.time == 0 else WALL
        drawn[rows, 2 + self.turned, 1 + self.column] = AGENT
        return drawn

    def guide(self) -> Ints:
        return np.where(self.column < self.world.length, EAST, np.where(self.south, SOUTH, NORTH))
