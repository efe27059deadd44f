"""The contract of a world: numbered episodes that are acted in, many of them side by side.

    scene = world.begin("valid", seed=0, first=0, count=20)      twenty episodes, at their first observation
    while not scene.ended.all():
        rewards = scene.act(actions(scene.observe()))            all of them make one step

Episode number i of a split is a function of (split, seed, i) and of what is done in it, as an example of a task is:

    train   what is learned in; other episodes for every run seed
    valid   what is selected on      }  fixed sets of `eval_size` episodes that depend on `data_seed` alone,
    test    what is reported         }  by the same rules and with the same layout as in training

A step is one action.  The clock belongs to the world: its last step is an end like any other.  For Gymnasium's loops
see `_gym.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hqlt_lab.tasks._base import Split, Task
from hqlt_lab.tasks._counter import Draws, Ints

Bytes = NDArray[np.uint8]
Bools = NDArray[np.bool_]
Rewards = NDArray[np.float32]

NORTH, SOUTH, WEST, EAST = range(4)
ROW_OF = np.array([-1, 1, 0, 0])  # what each action adds to the row, the first being the northernmost
COLUMN_OF = np.array([0, 0, -1, 1])


class Scene:
    """Episodes side by side, all at the same step.  One that has ended stays as it is, whatever is done in it."""

    time: int  # steps since the beginning
    ended: Bools  # [N]
    success: Bools  # [N] the goal was reached

    def observe(self) -> Bytes:
        """What is seen of each, [N, *shape]."""
        raise NotImplementedError(f"{type(self).__name__} shows nothing.")

    def act(self, actions: Ints) -> Rewards:
        """Do one of the actions in each, and what came of it [N]."""
        raise NotImplementedError(f"{type(self).__name__} cannot be acted in.")

    def picture(self) -> Bytes:
        """All of each, as people see it, RGB [N, rows, columns, 3]."""
        raise NotImplementedError(f"{type(self).__name__} cannot be drawn.")

    def guide(self) -> Ints:
        """What somebody would do who knows everything, [N]: a proof that the world can be solved."""
        raise NotImplementedError(f"{type(self).__name__} has no guide.")


@dataclass(frozen=True, kw_only=True)
class World(Task):
    """What the lab asks of a world.  A model reads its observations as vectors, so that there is no vocabulary."""

    splits = ("train", "valid", "test")
    is_world = True
    actions: ClassVar[tuple[str, ...]] = ("north", "south", "west", "east")
    brightest: ClassVar[int] = 255
    """The largest number in an observation."""

    eval_size: int = 20
    """Episodes in valid and in test."""
    data_seed: int = 0
    """Chooses the fixed sets, and the layout where one is for all."""

    @property
    def vocabulary(self) -> None:
        return None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of an observation: channels, rows, columns; or numbers."""
        raise NotImplementedError(f"{type(self).__name__} does not say what is seen.")

    @property
    def horizon(self) -> int:
        """Steps of the longest episode."""
        raise NotImplementedError(f"{type(self).__name__} does not say how long it goes on.")

    @property
    def chance(self) -> float:
        """Success in percent of reaching some goal, without knowing which."""
        raise NotImplementedError(f"{type(self).__name__} does not say what guessing achieves.")

    def begin(self, split: Split, seed: int, first: int, count: int) -> Scene:
        """Episodes first .. first + count - 1; only train looks at the run's seed."""
        raise NotImplementedError(f"{type(self).__name__} cannot begin.")

    def draws(self, split: Split, seed: int, first: int, count: int) -> Draws:
        """The random numbers of these episodes."""
        chosen = seed if split == "train" else self.data_seed
        return Draws(f"{type(self).__name__}/{split}/{chosen}", first, count)

    def tokens_in(self, split: Split) -> int:
        """Observations of the longest episode, the one after the last step among them."""
        return self.horizon + 1

    def metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        """From sums over episodes (`scored` of them) to means; success in percent, and normalised: guessing is 0."""
        episodes = totals["scored"]
        success = 100 * totals["success"] / episodes
        return {
            "return": totals["return"] / episodes,
            "success": success,
            "normalised_success": (success - self.chance) / (100 - self.chance) * 100,
            "length": totals["length"] / episodes,
        }

    @property
    def by_guessing(self) -> Mapping[str, float]:
        return {"success": self.chance, "normalised_success": 0.0}

    @property
    def measures(self) -> list[str]:
        return ["return", "success", "normalised_success", "length"]
