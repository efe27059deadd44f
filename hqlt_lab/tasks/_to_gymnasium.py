"""Gymnasium interface to an environment, one episode at a time, for use with other libraries.

    env = gym_environment({"name": "visual_match"})
    observation, _ = env.reset(seed=3)                      episode 0 of run seed 3; without a seed: the next episode
    observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())

The time limit is part of the environment: an episode that reaches it is terminated and never truncated.
"""

from typing import Any, cast

import numpy as np

from hqlt_lab.errors import ConfigError
from hqlt_lab.registry import build
from hqlt_lab.tasks._base import Split
from hqlt_lab.tasks._environment import Environment, UInt8Array

try:
    import gymnasium
    from gymnasium.spaces import Box, Discrete
except ModuleNotFoundError as error:
    raise ConfigError.at(
        "gym_environment",
        "package_not_installed",
        "the package gymnasium is not installed.",
        "Install it in the clone with: pip install -c constraints.txt -e '.[rl]'",
    ) from error

PIXELS_PER_CELL = 16  # size of a cell in a rendered image


class GymEnvironment(gymnasium.Env[UInt8Array, np.int64]):
    """Episodes of a split in order."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012  # as in gymnasium.Env

    def __init__(self, environment: Environment, split: Split = "train", render_mode: str | None = None) -> None:
        self.environment, self.split, self.render_mode = environment, split, render_mode
        self.observation_space = Box(0, environment.max_observation, environment.observation_shape, np.uint8)
        self.action_space = Discrete(len(environment.action_names))
        self.run_seed, self.episode_number = 0, -1

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[UInt8Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.run_seed, self.episode_number = (self.run_seed, self.episode_number + 1) if seed is None else (seed, 0)
        self.vector_env = self.environment.reset(self.split, self.run_seed, self.episode_number, 1)
        return self.vector_env.observation()[0], {}

    def step(self, action: np.int64) -> tuple[UInt8Array, float, bool, bool, dict[str, Any]]:
        reward = float(self.vector_env.step(np.array([action]))[0])
        info = {"success": bool(self.vector_env.success[0])}
        return self.vector_env.observation()[0], reward, bool(self.vector_env.done[0]), False, info

    def render(self) -> Any:
        return upscale_image(self.vector_env.render()[0]) if self.render_mode == "rgb_array" else None


def upscale_image(image: UInt8Array, factor: int = PIXELS_PER_CELL) -> UInt8Array:
    """Enlarge each cell of [..., rows, columns, 3] to a square of pixels."""
    return image.repeat(factor, -3).repeat(factor, -2)


def gym_environment(spec: Any, split: Split = "train", render_mode: str | None = None) -> GymEnvironment:
    """Build a registered environment from its name or {name: ..., option: ...}."""
    task = build("task", spec)
    if not task.is_environment:
        raise ConfigError.at("task", "not_an_environment", f"{spec!r} is not an environment.")
    return GymEnvironment(cast(Environment, task), split, render_mode)
