"""A world as Gymnasium knows worlds, one episode at a time, for the loops and tools of others.

    env = gym_world({"name": "visual_match"})
    observation, _ = env.reset(seed=3)                      episode 0 of run seed 3; without a seed: the next episode
    observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())

The clock is a rule of the world and not of whoever watches it: when it has run out the episode is terminated, and
nothing is ever truncated.
"""

from typing import Any, cast

import numpy as np

from hqlt_lab.errors import ConfigError
from hqlt_lab.registry import build
from hqlt_lab.tasks._base import Split
from hqlt_lab.tasks._world import Bytes, World

try:
    import gymnasium
    from gymnasium.spaces import Box, Discrete
except ModuleNotFoundError as error:
    raise ConfigError(
        "gym_world: gymnasium is not installed. In the clone: pip install -c constraints.txt -e '.[rl]'"
    ) from error

MAGNIFIED = 16  # pixels of a cell in a picture


class GymWorld(gymnasium.Env[Bytes, np.int64]):
    """Episodes of a split, one after the other."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012  # Gymnasium's own form

    def __init__(self, world: World, split: Split = "train", render_mode: str | None = None) -> None:
        self.world, self.split, self.render_mode = world, split, render_mode
        self.observation_space = Box(0, world.brightest, world.shape, np.uint8)
        self.action_space = Discrete(len(world.actions))
        self.run_seed, self.number = 0, -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Bytes, dict[str, Any]]:
        super().reset(seed=seed)
        self.run_seed, self.number = (self.run_seed, self.number + 1) if seed is None else (seed, 0)
        self.scene = self.world.begin(self.split, self.run_seed, self.number, 1)
        return self.scene.observe()[0], {}

    def step(self, action: np.int64) -> tuple[Bytes, float, bool, bool, dict[str, Any]]:
        reward = float(self.scene.act(np.array([action]))[0])
        told = {"success": bool(self.scene.success[0])}
        return self.scene.observe()[0], reward, bool(self.scene.ended[0]), False, told

    def render(self) -> Any:
        return magnified(self.scene.picture()[0]) if self.render_mode == "rgb_array" else None


def magnified(picture: Bytes, times: int = MAGNIFIED) -> Bytes:
    """Cells [..., rows, columns, 3] as squares of pixels."""
    return picture.repeat(times, -3).repeat(times, -2)


def gym_world(spec: Any, split: Split = "train", render_mode: str | None = None) -> GymWorld:
    """A registered world, by its name or {name: ..., option: ...}."""
    task = build("task", spec)
    if not task.is_world:
        raise ConfigError(f"task: {spec!r} has examples, and only a world can be acted in.")
    return GymWorld(cast(World, task), split, render_mode)
