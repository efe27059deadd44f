"""How many steps of a world are lived per second: many episodes in one program, and one at a time as Gymnasium does.

python benchmarks/world_speed.py
"""

import time
from collections.abc import Callable

import numpy as np

from hqlt_lab.registry import build
from hqlt_lab.tasks._gym import gym_world

COUNT, ROUNDS, STEPS = 512, 3, 3000
WORLDS = (
    {"name": "visual_match"},
    {"name": "visual_match", "regrow_at": "random", "order": "episode"},
    {"name": "t_maze", "length": 100},
)


def side_by_side(spec: dict[str, object], count: int) -> int:
    """Whole episodes with random actions, observations included; how many steps these were."""
    world = build("task", spec)
    actions = np.random.default_rng(0).integers(0, 4, (world.horizon, count))
    scene = world.begin("train", 0, 0, count)
    for step in actions:
        scene.observe()
        scene.act(step)
    return world.horizon * count


def one_by_one(spec: dict[str, object], steps: int) -> int:
    """The same through Gymnasium's interface."""
    env, actions = gym_world(spec), np.random.default_rng(0).integers(0, 4, steps)
    env.reset(seed=0)
    for action in actions:
        if env.step(action)[2]:
            env.reset()
    return steps


def pace(work: Callable[[], int]) -> float:
    """Steps per second of the fastest round."""
    best = 0.0
    for _ in range(ROUNDS):
        start = time.perf_counter()
        best = max(best, work() / (time.perf_counter() - start))
    return best


def main() -> None:
    print(f"{'world':70} {f'{COUNT} at once':>14} {'one by one':>12}   steps per second, one process")
    for spec in WORLDS:
        together, alone = pace(lambda: side_by_side(spec, COUNT)), pace(lambda: one_by_one(spec, STEPS))  # noqa: B023
        print(f"{spec!s:70} {together:14,.0f} {alone:12,.0f}")


if __name__ == "__main__":
    main()
