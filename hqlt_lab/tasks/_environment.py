"""The environment interface: numbered episodes, many of which run in parallel in a vector environment.

    env = environment.reset("valid", seed=0, first=0, count=20)      twenty episodes, at their first observation
    while not env.done.all():
        rewards = env.step(choose_actions(env.observation()))        one step in all episodes

Episode i of a split is a function of (split, seed, i) and of the actions taken:

    train   training episodes, different for every run seed
    valid   for model selection      }  fixed sets of `eval_size` episodes that depend only on `data_seed`,
    test    for the report           }  with the same rules and the same layout as in training

A step is one action.  The time limit is part of the environment: an episode that reaches it is terminated, not
truncated.  `_to_gymnasium.py` offers Gymnasium's interface.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hqlt_lab.tasks._base import Split, Task
from hqlt_lab.tasks._counter_rng import CounterRng, IntArray

UInt8Array = NDArray[np.uint8]
BoolArray = NDArray[np.bool_]
RewardArray = NDArray[np.float32]

NORTH, SOUTH, WEST, EAST = range(4)
ROW_STEP = np.array([-1, 1, 0, 0])  # change of the row by each action; row 0 is the northernmost
COLUMN_STEP = np.array([0, 0, -1, 1])


class VectorEnv:
    """Parallel episodes, all at the same step.  Actions have no effect in an episode that is done."""

    elapsed_steps: int  # steps since the reset
    done: BoolArray  # [N]
    success: BoolArray  # [N] True where the goal was reached

    def observation(self) -> UInt8Array:
        """Return the current observations [N, *observation_shape]."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `observation`.")

    def step(self, actions: IntArray) -> RewardArray:
        """Take one action per episode and return the rewards [N]."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `step`.")

    def render(self) -> UInt8Array:
        """Return an RGB image of each episode's full state, [N, rows, columns, 3], one pixel per cell."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `render`.")

    def expert_action(self) -> IntArray:
        """Return the actions [N] of an expert that sees the full state.  Shows that the environment is solvable."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `expert_action`.")


@dataclass(frozen=True, kw_only=True)
class Environment(Task):
    """Base class of all environments.  A model reads observations as vectors, so there is no vocabulary."""

    splits = ("train", "valid", "test")
    is_environment = True
    action_names: ClassVar[tuple[str, ...]] = ("north", "south", "west", "east")
    max_observation: ClassVar[int] = 255
    """Largest number in an observation."""

    eval_size: int = 20
    """Episodes in valid and in test."""
    data_seed: int = 0
    """Selects the fixed sets, and the layout if it is the same for all episodes."""

    @property
    def vocabulary(self) -> None:
        return None

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of an observation: (channels, rows, columns) of an image, or (numbers,)."""
        raise NotImplementedError(f"{type(self).__name__} does not define `observation_shape`.")

    @property
    def max_episode_steps(self) -> int:
        """Maximum number of steps of an episode."""
        raise NotImplementedError(f"{type(self).__name__} does not define `max_episode_steps`.")

    @property
    def chance_level(self) -> float:
        """Success rate in percent of an agent that reaches a goal at random, without knowing the right one."""
        raise NotImplementedError(f"{type(self).__name__} does not define `chance_level`.")

    def reset(self, split: Split, seed: int, first: int, count: int) -> VectorEnv:
        """Start episodes first .. first + count - 1.  Only `train` depends on the run's seed."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `reset`.")

    def make_rng(self, split: Split, seed: int, first: int, count: int) -> CounterRng:
        """Return the random numbers of episodes first .. first + count - 1."""
        split_seed = seed if split == "train" else self.data_seed
        return CounterRng(f"{type(self).__name__}/{split}/{split_seed}", first, count)

    def sequence_length(self, split: Split) -> int:
        """Return the number of observations of the longest episode, including the one after the last step."""
        return self.max_episode_steps + 1

    def compute_metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        """Compute means from sums over `scored` episodes.  Success is in percent; normalized, chance level is 0."""
        episodes = totals["scored"]
        success = 100 * totals["success"] / episodes
        return {
            "return": totals["return"] / episodes,
            "success": success,
            "normalized_success": (success - self.chance_level) / (100 - self.chance_level) * 100,
            "length": totals["length"] / episodes,
        }

    @property
    def chance_by_metric(self) -> Mapping[str, float]:
        return {"success": self.chance_level, "normalized_success": 0.0}

    @property
    def metric_names(self) -> list[str]:
        return ["return", "success", "normalized_success", "length"]
