"""Soft actor-critic losses agree with values computed by hand and with a step-by-step reference."""

import math
from copy import deepcopy

import pytest
import torch

from hqlt_lab.agent.sac import EpisodeBatch, Policy, sac_losses, soft_update, td_target
from hqlt_lab.experiment.run_settings import AgentConfig
from tests.agent.conftest import MATCH, make_agent


def test_td_target_equals_a_value_computed_by_hand():
    settings = AgentConfig(discount=0.5, entropy=0.1)
    probs = torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=torch.float64)
    target_q = torch.tensor([[2.0, 4.0], [1.0, 3.0]], dtype=torch.float64)
    target = td_target(
        torch.tensor([1.0, 10.0], dtype=torch.float64),
        torch.tensor([False, True]),
        Policy(probs, probs.log()),
        target_q,
        settings,
    )
    # 0.25 (2 - 0.1 ln 0.25) + 0.75 (4 - 0.1 ln 0.75) = 3.5 + 0.1 * 0.562335 = 3.5562335; half of it is 1.77811675
    assert target.tolist() == pytest.approx([2.77811675, 10.0], abs=1e-7)


def random_batch(environment, rows=3, longest=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([longest, longest - 2, 1])[:rows]
    return EpisodeBatch(
        torch.randint(
            0,
            environment.max_observation + 1,
            (rows, longest + 1, *environment.observation_shape),
            dtype=torch.uint8,
            generator=generator,
        ),
        torch.randint(0, 4, (rows, longest), generator=generator),
        torch.randn(rows, longest, dtype=torch.float64, generator=generator),
        lengths,
    )


def reference_losses(agent, target_critics, batch, settings):
    """Return the critic and the actor loss, computed step by step."""
    h, _ = agent(batch.observations)
    critic_loss, actor_loss, count = 0.0, 0.0, 0
    for row, length in enumerate(batch.lengths.tolist()):
        for t in range(length):
            count += 1
            target = batch.rewards[row, t]
            if t < length - 1:
                with torch.no_grad():
                    probs = agent.policy(h[row, t + 1]).softmax(-1)
                    next_q = torch.minimum(*(critic(h[row, t + 1]) for critic in target_critics))
                    target = target + settings.discount * (probs * (next_q - settings.entropy * probs.log())).sum()
            for critic in agent.critics:
                critic_loss = critic_loss + (critic(h[row, t])[batch.actions[row, t]] - target) ** 2
            probs = agent.policy(h[row, t]).softmax(-1)
            q = torch.minimum(*(critic(h[row, t].detach()) for critic in agent.critics)).detach()
            actor_loss = actor_loss + (probs * (settings.entropy * probs.log() - q)).sum()
    return critic_loss / count / 2, actor_loss / count


@pytest.mark.parametrize("task", [{"name": "t_maze", "length": 5}, MATCH], ids=["maze", "room"])
def test_losses_and_gradients_equal_the_reference(task):
    agent, environment = make_agent(task)
    agent.double()
    target_critics = deepcopy(agent.critics)
    for parameter in target_critics.parameters():
        parameter.data += 0.1
    settings, batch = AgentConfig(), random_batch(environment)
    losses = sac_losses(agent, target_critics, batch, settings)
    critic_loss, actor_loss = reference_losses(agent, target_critics, batch, settings)
    torch.testing.assert_close(losses.critic, critic_loss)
    torch.testing.assert_close(losses.actor, actor_loss)
    torch.testing.assert_close(losses.total, critic_loss + actor_loss)
    grads = torch.autograd.grad(losses.total, list(agent.parameters()), retain_graph=True)
    reference_grads = torch.autograd.grad(critic_loss + actor_loss, list(agent.parameters()))
    for grad, reference_grad in zip(grads, reference_grads, strict=True):
        torch.testing.assert_close(grad, reference_grad)
    assert not any(parameter.grad is not None for parameter in target_critics.parameters())


def test_values_beyond_the_end_of_an_episode_do_not_change_the_losses():
    agent, environment = make_agent()
    agent.double()
    batch, settings = random_batch(environment), AgentConfig()
    changed = batch._replace(
        observations=batch.observations.clone(), actions=batch.actions.clone(), rewards=batch.rewards.clone()
    )
    for row, length in enumerate(batch.lengths.tolist()):
        changed.observations[row, length + 1 :] = 1
        changed.actions[row, length:] = 3
        changed.rewards[row, length:] = math.inf
    losses, changed_losses = (sac_losses(agent, agent.critics, x, settings) for x in (batch, changed))
    torch.testing.assert_close(torch.stack([*losses]), torch.stack([*changed_losses]))


def test_actor_loss_has_gradients_for_the_memory_and_not_for_the_critics():
    agent, environment = make_agent()
    agent.double()
    actor_loss = sac_losses(agent, agent.critics, random_batch(environment), AgentConfig()).actor
    grads = torch.autograd.grad(actor_loss, list(agent.parameters()), allow_unused=True)
    modules_with_gradients = {
        name.split(".")[0] for (name, _), grad in zip(agent.named_parameters(), grads, strict=True) if grad is not None
    }
    assert modules_with_gradients == {"encoder", "memory", "policy"}


def test_target_critics_move_by_a_fraction_of_the_difference():
    agent, _ = make_agent()
    target_critics = deepcopy(agent.critics)
    for parameter in agent.critics.parameters():
        parameter.data += 1
    before = [parameter.clone() for parameter in target_critics.parameters()]
    soft_update(target_critics, agent.critics, 0.005)
    for parameter, old in zip(target_critics.parameters(), before, strict=True):
        torch.testing.assert_close(parameter, old + 0.005)


def test_policy_and_critics_start_near_zero_and_the_encoder_is_that_of_the_paper():
    agent, _ = make_agent(MATCH, {"hidden": [256, 256]}, width=100, heads=2)
    h = torch.randn(50, 100)
    assert agent.policy(h).abs().max() < 0.1 and all(critic(h).abs().max() < 0.5 for critic in agent.critics)
    shapes = [tuple(parameter.shape) for parameter in agent.encoder.parameters()]
    assert shapes == [(8, 3, 2, 2), (8,), (16, 8, 2, 2), (16,), (100, 144), (100,)]
    assert [tuple(layer.weight.shape) for layer in agent.policy.maps] == [(256, 100), (256, 256), (4, 256)]
    assert (agent.policy.maps[0].bias == 0.1).all() and agent.policy.maps[0].weight.abs().max() <= 1 / 16
