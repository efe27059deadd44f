"""Before anything is learned: the memory must answer step by step as it does for whole episodes.

Acting reads one observation at a time, learning reads episodes at once.  If the two differ, an agent acts on something
else than it learns, and nobody sees it in a curve.  Compared are all steps of two episodes, in the mode and precision
of training, with dropout off.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from hqlt_lab.agent.acting import Wandering
from hqlt_lab.agent.episodes import live
from hqlt_lab.agent.networks import Agent
from hqlt_lab.errors import TrainingError
from hqlt_lab.tasks._world import World

EPISODES = 2
EXACT, ROUNDED = 1e-3, 0.1  # allowed, where the root mean square of the answers is 1


@torch.no_grad()
def check_memory(agent: Agent, world: World, seed: int, exact: bool) -> float:
    """The largest difference; a TrainingError where it is more than rounding, of 16 bits if not `exact`."""
    scene, draws = world.begin("train", seed, 0, EPISODES), world.draws("train", seed, 0, EPISODES)
    seen = live(scene, Wandering(draws, len(world.actions), world.horizon), world.horizon).observations
    observations = torch.from_numpy(seen).to(agent.device)
    with without_dropout(agent):
        whole = agent(observations)[0]
        apart = (step_by_step(agent, observations) - whole).abs().amax((0, 2)) / whole.square().mean().sqrt()  # [T]
    worst = float(apart.max())
    if not worst <= (EXACT if exact else ROUNDED):  # not a number is no answer either
        first = int((apart > (EXACT if exact else ROUNDED)).int().argmax())
        raise TrainingError(
            f"The memory answers otherwise step by step than for a whole episode: from step {first} on, by up to "
            f"{worst:.2g}. The agent would act on something else than it learns. `hqlt check` tells which part it is."
        )
    return worst


def step_by_step(agent: Agent, observations: Tensor) -> Tensor:
    """The answers to [B, T, *shape], one observation at a time."""
    answers, state = [], None
    for time in range(observations.shape[1]):
        h, state = agent(observations[:, time : time + 1], state)
        answers.append(h)
    return torch.cat(answers, 1)


@contextmanager
def without_dropout(module: nn.Module) -> Iterator[None]:
    """Dropout is off, and everything else in the mode that it was."""
    active = [one for one in module.modules() if isinstance(one, nn.Dropout) and one.training]
    for one in active:
        one.eval()
    try:
        yield
    finally:
        for one in active:
            one.train()
