"""How well an agent does in the fixed episodes of a world: the most probable actions, dropout off."""

from typing import NamedTuple

import torch

from hqlt_lab.agent.acting import Acting
from hqlt_lab.agent.episodes import Episodes, live
from hqlt_lab.agent.networks import Agent
from hqlt_lab.tasks._base import Split
from hqlt_lab.tasks._world import World
from hqlt_lab.train.sums import Metrics, Sums

NAMES = ("scored", "return", "success", "length")


class WorldScore(NamedTuple):
    """What came of the episodes of a split."""

    world: World
    sums: Sums

    @property
    def metrics(self) -> Metrics:
        return self.sums.metrics(self.world.metrics)

    @property
    def errors(self) -> Metrics:
        """The standard error of each over the episodes."""
        return self.sums.errors(self.world.metrics)


def score_world(agent: Agent, world: World, split: Split, batch_size: int) -> WorldScore:
    """All fixed episodes of a split, so many at once."""
    was_training = agent.training
    agent.eval()
    starts = range(0, world.eval_size, batch_size)
    lived = [lived_once(agent, world, split, start, min(batch_size, world.eval_size - start)) for start in starts]
    agent.train(was_training)
    rows = torch.cat([counts(some) for some in lived])  # [N, K]
    return WorldScore(world, Sums(NAMES, len(rows), rows.sum(0), rows.mT @ rows))


def lived_once(agent: Agent, world: World, split: Split, first: int, count: int) -> Episodes:
    return live(world.begin(split, 0, first, count), Acting(agent, greedy=True), world.horizon)


def counts(lived: Episodes) -> torch.Tensor:
    """A row per episode, by NAMES."""
    columns = (torch.from_numpy(values).double() for values in (lived.returns, lived.success, lived.lengths))
    return torch.stack([torch.ones(len(lived.lengths), dtype=torch.float64), *columns], 1)
