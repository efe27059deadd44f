"""Soft actor-critic for discrete actions, over whole episodes read once by one memory.

    y_t     = r_t + gamma sum_a pi(a | h_{t+1}) [ min_i Q'_i(h_{t+1}, a) - alpha log pi(a | h_{t+1}) ],   r_t at the end
    critic  = mean_t (Q_i(h_t, a_t) - y_t)^2                                                            i = 1, 2
    actor   = mean_t sum_a pi(a | h_t) [ alpha log pi(a | h_t) - min_i Q_i(h_t, a) ]      no gradient through the Q
    loss    = (critic_1 + critic_2) / 2 + actor

Memory and encoder learn from critics and policy alike; there is one of them, and h_{t+1} in the target is what it makes
of the same episode one observation later.  Only the critics have slow copies, Q'.  Probabilities count as 1e-8 at least
in logarithms.  An episode that the clock has ended is over, too.

Christodoulou 2019, arXiv:1910.07207; Ni et al. 2023, arXiv:2307.03864.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hqlt_lab.agent.networks import Agent
from hqlt_lab.experiment.agent import AgentConfig

SMALLEST = 1e-8


class Batch(NamedTuple):
    """Episodes to learn from."""

    observations: Tensor  # [B, T + 1, *shape]
    actions: Tensor  # [B, T]
    rewards: Tensor  # [B, T]
    lengths: Tensor  # [B]

    def to(self, device: torch.device) -> "Batch":
        return Batch(*(field.to(device) for field in self))


class Losses(NamedTuple):
    """What an update found."""

    total: Tensor
    critic: Tensor
    actor: Tensor
    entropy: Tensor  # of the policy, in nats
    value: Tensor  # of the actions that were taken, by the less hopeful critic


class Policy(NamedTuple):
    """Probabilities and their logarithms, [..., actions]."""

    chances: Tensor
    logs: Tensor


def losses(agent: Agent, targets: nn.ModuleList, batch: Batch, settings: AgentConfig) -> Losses:
    """Of one batch."""
    h, _ = agent(batch.observations)  # [B, T + 1, width]
    now, steps = h[:, :-1], torch.arange(batch.actions.shape[1], device=h.device)
    lived = steps < batch.lengths[:, None]  # [B, T]
    policy = policy_of(agent, h)
    before, after = (Policy(*(part[:, piece] for part in policy)) for piece in (slice(-1), slice(1, None)))
    with torch.no_grad():
        hoped = lowest(targets, h[:, 1:])
        goal = wanted(batch.rewards, steps == batch.lengths[:, None] - 1, after, hoped, settings)
        known = lowest(agent.critics, now.detach())
    taken = batch.actions[..., None]
    found = torch.stack([critic(now).gather(-1, taken)[..., 0] for critic in agent.critics])  # [2, B, T]
    critic = over(lived, ((found - goal) ** 2).sum(0)) / 2
    actor = over(lived, (before.chances * (settings.entropy * before.logs - known)).sum(-1))
    entropy = over(lived, -(before.chances * before.logs).sum(-1))
    return Losses(critic + actor, critic, actor, entropy, over(lived, found.amin(0)))


def policy_of(agent: Agent, h: Tensor) -> Policy:
    """What the agent would do."""
    chances = agent.policy(h).softmax(-1)
    return Policy(chances, chances.clamp(min=SMALLEST).log())


def lowest(critics: Iterable[nn.Module], h: Tensor) -> Tensor:
    """What the less hopeful critic says of each action."""
    return torch.stack([critic(h) for critic in critics]).amin(0)


def wanted(rewards: Tensor, last: Tensor, policy: Policy, hoped: Tensor, settings: AgentConfig) -> Tensor:
    """y: what an action was worth, from its reward and what follows [..., actions]; nothing follows the last one."""
    value = (policy.chances * (hoped - settings.entropy * policy.logs)).sum(-1)
    return rewards + settings.discount * value.masked_fill(last, 0.0)


def over(lived: Tensor, values: Tensor) -> Tensor:
    """The mean over the steps that were lived."""
    return values.masked_fill(~lived, 0.0).sum() / lived.sum()


@torch.no_grad()
def follow(targets: nn.Module, critics: nn.Module, rate: float) -> None:
    """Let the slow copies move towards the critics."""
    for slow, fast in zip(targets.parameters(), critics.parameters(), strict=True):
        slow.lerp_(fast, rate)
