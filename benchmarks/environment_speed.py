"""Steps per second of the environments: many vectorized episodes, and one episode at a time as in Gymnasium.

python benchmarks/environment_speed.py
"""

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from hqlt_lab.registry import build
from hqlt_lab.tasks._to_gymnasium import gym_environment

COUNT, ROUNDS, STEPS = 512, 3, 3000
ENVIRONMENTS = (
    {"name": "visual_match"},
    {"name": "visual_match", "regrow_at": "random", "order": "episode"},
    {"name": "t_maze", "length": 100},
)


def run_vectorized(spec: dict[str, object], count: int) -> int:
    """Run complete episodes with random actions, including observations, and return the number of steps."""
    environment = build("task", spec)
    actions = np.random.default_rng(0).integers(0, 4, (environment.max_episode_steps, count))
    episodes = environment.reset("train", 0, 0, count)
    for step_actions in actions:
        episodes.observation()
        episodes.step(step_actions)
    return environment.max_episode_steps * count


def run_sequential(spec: dict[str, object], steps: int) -> int:
    """Run one episode at a time through Gymnasium's interface, and return the number of steps."""
    env, actions = gym_environment(spec), np.random.default_rng(0).integers(0, 4, steps)
    env.reset(seed=0)
    for action in actions:
        if env.step(action)[2]:
            env.reset()
    return steps


def steps_per_second(function: Callable[[], int]) -> float:
    """Return the steps per second of the fastest round."""
    best = 0.0
    for _ in range(ROUNDS):
        start = time.perf_counter()
        best = max(best, function() / (time.perf_counter() - start))
    return best


def main() -> None:
    print(f"{'environment':70} {f'{COUNT} at once':>14} {'one by one':>12}   steps per second, one process")
    for spec in ENVIRONMENTS:
        vectorized = steps_per_second(partial(run_vectorized, spec, COUNT))
        sequential = steps_per_second(partial(run_sequential, spec, STEPS))
        print(f"{spec!s:70} {vectorized:14,.0f} {sequential:12,.0f}")


if __name__ == "__main__":
    main()
