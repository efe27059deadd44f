"""Score an agent on the fixed episodes of an environment, with greedy actions and without dropout."""

from typing import NamedTuple

import torch

from hqlt_lab.agent.action_selection import PolicyActor
from hqlt_lab.agent.networks import Agent
from hqlt_lab.agent.rollout import Episodes, collect_rollout
from hqlt_lab.tasks._base import Split
from hqlt_lab.tasks._environment import Environment
from hqlt_lab.train.scoring import Metrics, MetricSums

COUNT_NAMES = ("scored", "return", "success", "length")


class EpisodeScore(NamedTuple):
    """Metrics of an agent on the episodes of a split."""

    environment: Environment
    sums: MetricSums

    @property
    def metrics(self) -> Metrics:
        return self.sums.compute_metrics(self.environment.compute_metrics)

    @property
    def errors(self) -> Metrics:
        """The standard error of each metric over the episodes."""
        return self.sums.standard_errors(self.environment.compute_metrics)


def score_agent(agent: Agent, environment: Environment, split: Split, batch_size: int) -> EpisodeScore:
    """Score an agent on all fixed episodes of a split, `batch_size` at a time."""
    was_training = agent.training
    agent.eval()
    starts = range(0, environment.eval_size, batch_size)
    rollouts = [
        rollout_fixed_episodes(agent, environment, split, start, min(batch_size, environment.eval_size - start))
        for start in starts
    ]
    agent.train(was_training)
    rows = torch.cat([episode_counts(episodes) for episodes in rollouts])  # [N, K]
    return EpisodeScore(environment, MetricSums(COUNT_NAMES, len(rows), rows.sum(0), rows.mT @ rows))


def rollout_fixed_episodes(
    agent: Agent, environment: Environment, split: Split, first_episode: int, count: int
) -> Episodes:
    """Roll out `count` fixed episodes of a split with greedy actions."""
    return collect_rollout(
        environment.reset(split, 0, first_episode, count),
        PolicyActor(agent, greedy=True),
        environment.max_episode_steps,
    )


def episode_counts(episodes: Episodes) -> torch.Tensor:
    """Return one row of counts per episode [N, K], in the order of COUNT_NAMES."""
    columns = (torch.from_numpy(values).double() for values in (episodes.returns, episodes.success, episodes.lengths))
    return torch.stack([torch.ones(len(episodes.lengths), dtype=torch.float64), *columns], 1)
