"""Soft actor-critic, against numbers computed by hand and against the formulas written out step by step."""

import math
from copy import deepcopy

import pytest
import torch

from hqlt_lab.agent.learning import Batch, Policy, follow, losses, wanted
from hqlt_lab.experiment.agent import AgentConfig
from tests.agent.conftest import ROOM, agent_of


def test_the_target_of_a_case_computed_by_hand():
    settings = AgentConfig(discount=0.5, entropy=0.1)
    chances = torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=torch.float64)
    hoped = torch.tensor([[2.0, 4.0], [1.0, 3.0]], dtype=torch.float64)
    goal = wanted(
        torch.tensor([1.0, 10.0], dtype=torch.float64),
        torch.tensor([False, True]),
        Policy(chances, chances.log()),
        hoped,
        settings,
    )
    # 0.25 (2 - 0.1 ln 0.25) + 0.75 (4 - 0.1 ln 0.75) = 3.5 + 0.1 * 0.562335 = 3.5562335; half of it is 1.77811675
    assert goal.tolist() == pytest.approx([2.77811675, 10.0], abs=1e-7)


def batch_of(world, rows=3, longest=6, seed=0):
    draws = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([longest, longest - 2, 1])[:rows]
    return Batch(
        torch.randint(0, world.brightest + 1, (rows, longest + 1, *world.shape), dtype=torch.uint8, generator=draws),
        torch.randint(0, 4, (rows, longest), generator=draws),
        torch.randn(rows, longest, dtype=torch.float64, generator=draws),
        lengths,
    )


def by_hand(agent, targets, batch, settings):
    """The same, one step after the other."""
    h, _ = agent(batch.observations)
    critic, actor, count = 0.0, 0.0, 0
    for row, length in enumerate(batch.lengths.tolist()):
        for t in range(length):
            count += 1
            goal = batch.rewards[row, t]
            if t < length - 1:
                with torch.no_grad():
                    chances = agent.policy(h[row, t + 1]).softmax(-1)
                    worst = torch.minimum(*(target(h[row, t + 1]) for target in targets))
                    goal = goal + settings.discount * (chances * (worst - settings.entropy * chances.log())).sum()
            for one in agent.critics:
                critic = critic + (one(h[row, t])[batch.actions[row, t]] - goal) ** 2
            chances = agent.policy(h[row, t]).softmax(-1)
            known = torch.minimum(*(one(h[row, t].detach()) for one in agent.critics)).detach()
            actor = actor + (chances * (settings.entropy * chances.log() - known)).sum()
    return critic / count / 2, actor / count


@pytest.mark.parametrize("task", [{"name": "t_maze", "length": 5}, ROOM], ids=["maze", "room"])
def test_losses_and_gradients_are_those_of_the_formulas(task):
    agent, world = agent_of(task)
    agent.double()
    targets = deepcopy(agent.critics)
    for parameter in targets.parameters():
        parameter.data += 0.1
    settings, batch = AgentConfig(), batch_of(world)
    found = losses(agent, targets, batch, settings)
    critic, actor = by_hand(agent, targets, batch, settings)
    torch.testing.assert_close(found.critic, critic)
    torch.testing.assert_close(found.actor, actor)
    torch.testing.assert_close(found.total, critic + actor)
    ours = torch.autograd.grad(found.total, list(agent.parameters()), retain_graph=True)
    theirs = torch.autograd.grad(critic + actor, list(agent.parameters()))
    for mine, yours in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, yours)
    assert not any(parameter.grad is not None for parameter in targets.parameters())


def test_what_lies_behind_the_end_of_an_episode_changes_nothing():
    agent, world = agent_of()
    agent.double()
    batch, settings = batch_of(world), AgentConfig()
    other = batch._replace(
        observations=batch.observations.clone(), actions=batch.actions.clone(), rewards=batch.rewards.clone()
    )
    for row, length in enumerate(batch.lengths.tolist()):
        other.observations[row, length + 1 :] = 1
        other.actions[row, length:] = 3
        other.rewards[row, length:] = math.inf
    one, two = (losses(agent, agent.critics, some, settings) for some in (batch, other))
    torch.testing.assert_close(torch.stack([*one]), torch.stack([*two]))


def test_the_policys_gradient_reaches_the_memory_and_never_a_critic():
    agent, world = agent_of()
    agent.double()
    actor = losses(agent, agent.critics, batch_of(world), AgentConfig()).actor
    grads = torch.autograd.grad(actor, list(agent.parameters()), allow_unused=True)
    reached = {
        name.split(".")[0] for (name, _), grad in zip(agent.named_parameters(), grads, strict=True) if grad is not None
    }
    assert reached == {"encoder", "memory", "policy"}


def test_slow_copies_follow_by_a_share_of_the_way():
    agent, _ = agent_of()
    targets = deepcopy(agent.critics)
    for parameter in agent.critics.parameters():
        parameter.data += 1
    before = [parameter.clone() for parameter in targets.parameters()]
    follow(targets, agent.critics, 0.005)
    for slow, old in zip(targets.parameters(), before, strict=True):
        torch.testing.assert_close(slow, old + 0.005)


def test_policy_and_critics_begin_near_zero_and_the_encoder_is_the_papers():
    agent, _ = agent_of(ROOM, {"hidden": [256, 256]}, width=100, heads=2)
    h = torch.randn(50, 100)
    assert agent.policy(h).abs().max() < 0.1 and all(critic(h).abs().max() < 0.5 for critic in agent.critics)
    shapes = [tuple(parameter.shape) for parameter in agent.encoder.parameters()]
    assert shapes == [(8, 3, 2, 2), (8,), (16, 8, 2, 2), (16,), (100, 144), (100,)]
    assert [tuple(one.weight.shape) for one in agent.policy.maps] == [(256, 100), (256, 256), (4, 256)]
    assert (agent.policy.maps[0].bias == 0.1).all() and agent.policy.maps[0].weight.abs().max() <= 1 / 16
