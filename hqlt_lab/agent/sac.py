"""Soft actor-critic losses for discrete actions, on complete episodes read by one memory.

    y_t     = r_t + gamma sum_a pi(a | h_{t+1}) [ min_i Q'_i(h_{t+1}, a) - alpha log pi(a | h_{t+1}) ],   r_t at the end
    critic  = mean_t (Q_i(h_t, a_t) - y_t)^2                                                            i = 1, 2
    actor   = mean_t sum_a pi(a | h_t) [ alpha log pi(a | h_t) - min_i Q_i(h_t, a) ]      no gradient through the Q
    loss    = (critic_1 + critic_2) / 2 + actor

Memory and encoder are shared and trained by the critic and the actor loss.  h_{t+1} in the target is the output of the
same forward pass one observation later; only the critics have target networks, Q'.  Probabilities are clamped to 1e-8
in logarithms.  An episode ended by the time limit counts as terminated.

Christodoulou 2019, arXiv:1910.07207; Ni et al. 2023, arXiv:2307.03864.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hqlt_lab.agent.networks import Agent
from hqlt_lab.experiment.run_settings import AgentConfig

MIN_PROBABILITY = 1e-8


class EpisodeBatch(NamedTuple):
    """Episodes of one update."""

    observations: Tensor  # [B, T + 1, *shape]
    actions: Tensor  # [B, T]
    rewards: Tensor  # [B, T]
    lengths: Tensor  # [B]

    def to(self, device: torch.device) -> "EpisodeBatch":
        return EpisodeBatch(*(field.to(device) for field in self))


class SacLosses(NamedTuple):
    """Losses and diagnostics of one update."""

    total: Tensor
    critic: Tensor
    actor: Tensor
    entropy: Tensor  # mean entropy of the policy, in nats
    q_value: Tensor  # mean value of the taken actions, minimum of both critics


class Policy(NamedTuple):
    """Action probabilities and their logarithms, [..., actions]."""

    probs: Tensor
    log_probs: Tensor


def sac_losses(agent: Agent, target_critics: nn.ModuleList, batch: EpisodeBatch, settings: AgentConfig) -> SacLosses:
    """Compute the losses of one batch."""
    h, _ = agent(batch.observations)  # [B, T + 1, width]
    current, steps = h[:, :-1], torch.arange(batch.actions.shape[1], device=h.device)
    mask = steps < batch.lengths[:, None]  # [B, T]
    policy = action_policy(agent, h)
    current_policy, next_policy = (Policy(*(x[:, times] for x in policy)) for times in (slice(-1), slice(1, None)))
    with torch.no_grad():
        next_q = min_q(target_critics, h[:, 1:])
        target = td_target(batch.rewards, steps == batch.lengths[:, None] - 1, next_policy, next_q, settings)
        current_q = min_q(agent.critics, current.detach())
    actions = batch.actions[..., None]
    q = torch.stack([critic(current).gather(-1, actions)[..., 0] for critic in agent.critics])  # [2, B, T]
    probs, log_probs = current_policy
    critic_loss = masked_mean(mask, ((q - target) ** 2).sum(0)) / 2
    actor_loss = masked_mean(mask, (probs * (settings.entropy * log_probs - current_q)).sum(-1))
    entropy = masked_mean(mask, -(probs * log_probs).sum(-1))
    return SacLosses(critic_loss + actor_loss, critic_loss, actor_loss, entropy, masked_mean(mask, q.amin(0)))


def action_policy(agent: Agent, h: Tensor) -> Policy:
    """Return the policy at memory outputs h [..., width]."""
    probs = agent.policy(h).softmax(-1)
    return Policy(probs, probs.clamp(min=MIN_PROBABILITY).log())


def min_q(critics: Iterable[nn.Module], h: Tensor) -> Tensor:
    """Return the minimum of the critics' values of each action, [..., actions]."""
    return torch.stack([critic(h) for critic in critics]).amin(0)


def td_target(rewards: Tensor, is_last: Tensor, policy: Policy, target_q: Tensor, settings: AgentConfig) -> Tensor:
    """Return the target y [B, T] of the critics.  The last step of an episode has no future value."""
    value = (policy.probs * (target_q - settings.entropy * policy.log_probs)).sum(-1)
    return rewards + settings.discount * value.masked_fill(is_last, 0.0)


def masked_mean(mask: Tensor, values: Tensor) -> Tensor:
    """Return the mean of the values where the mask is True."""
    return values.masked_fill(~mask, 0.0).sum() / mask.sum()


@torch.no_grad()
def soft_update(target_critics: nn.Module, critics: nn.Module, rate: float) -> None:
    """Move the target critics toward the critics by a fraction `rate` of their difference."""
    for target, source in zip(target_critics.parameters(), critics.parameters(), strict=True):
        target.lerp_(source, rate)
