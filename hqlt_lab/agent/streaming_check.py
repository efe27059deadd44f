"""Check before training that the memory gives the same outputs step by step as for whole episodes.

Acting reads one observation at a time, while an update reads whole episodes.  If the outputs differ, the agent acts on
other features than it is trained on, which no training curve shows.  The check compares all steps of two episodes, in
the mode and precision of training, with dropout off.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from hqlt_lab.agent.action_selection import RandomActor
from hqlt_lab.agent.networks import Agent
from hqlt_lab.agent.rollout import collect_rollout
from hqlt_lab.errors import TrainingError
from hqlt_lab.tasks._environment import Environment

CHECKED_EPISODES = 2
EXACT_TOLERANCE, ROUNDING_TOLERANCE = 1e-3, 0.1  # relative to the root mean square of the outputs


@torch.no_grad()
def check_streaming_equivalence(agent: Agent, environment: Environment, seed: int, full_precision: bool) -> float:
    """Return the largest relative difference.  Raise `TrainingError` if it exceeds rounding errors.

    Without `full_precision`, rounding errors of 16-bit numbers are allowed.
    """
    max_steps = environment.max_episode_steps
    env = environment.reset("train", seed, 0, CHECKED_EPISODES)
    rng = environment.make_rng("train", seed, 0, CHECKED_EPISODES)
    episodes = collect_rollout(env, RandomActor(rng, len(environment.action_names), max_steps), max_steps)
    observations = torch.from_numpy(episodes.observations).to(agent.device)
    with disable_dropout(agent):
        expected = agent(observations)[0]
        errors = (run_stepwise(agent, observations) - expected).abs().amax((0, 2))  # [T]
        errors = errors / expected.square().mean().sqrt()
    worst = float(errors.max())
    tolerance = EXACT_TOLERANCE if full_precision else ROUNDING_TOLERANCE
    if not worst <= tolerance:  # also true for NaN
        first = int((errors > tolerance).int().argmax())
        raise TrainingError(
            f"Step-by-step outputs of the memory differ from those for a whole episode, from step {first} on, by up to "
            f"{worst:.2g}. The agent would act with other outputs than it is trained with. `hqlt check` shows which "
            "component is wrong."
        )
    return worst


def run_stepwise(agent: Agent, observations: Tensor) -> Tensor:
    """Return the memory's outputs for observations [B, T, *shape], computed one observation at a time."""
    outputs, state = [], None
    for t in range(observations.shape[1]):
        h, state = agent(observations[:, t : t + 1], state)
        outputs.append(h)
    return torch.cat(outputs, 1)


@contextmanager
def disable_dropout(module: nn.Module) -> Iterator[None]:
    """Disable dropout and leave all other modules in their mode."""
    active = [child for child in module.modules() if isinstance(child, nn.Dropout) and child.training]
    for dropout in active:
        dropout.eval()
    try:
        yield
    finally:
        for dropout in active:
            dropout.train()
