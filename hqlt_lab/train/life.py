"""An agent in its world: acting and learning in turns, each a function of counts, so that a run can go on exactly.

    a turn      some episodes are lived and kept; then as many updates as their steps are worth
    updates     floor(updates_per_step * steps) in all, once the warm-up is over

Random numbers are those of the place: dropout and drawn actions of (seed, episode) or (seed, update), batches of
(seed, update), episodes of (seed, number).  What a checkpoint has to hold is weights, the optimiser, the slow copies of
the critics and some counts; the episodes are in a file of their own (`agent/replay.py`).
"""

import os
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.fabric import Fabric
from lightning.fabric.plugins.environments import LightningEnvironment
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from hqlt_lab.agent.acting import Acting, Wandering
from hqlt_lab.agent.episodes import Actor, Episodes, live
from hqlt_lab.agent.learning import Losses, follow, losses
from hqlt_lab.agent.networks import Agent
from hqlt_lab.agent.replay import Replay
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.settings import TrainerConfig
from hqlt_lab.model.config import model_config
from hqlt_lab.model.initialise import initialise
from hqlt_lab.tasks._world import World
from hqlt_lab.train.guard import guard
from hqlt_lab.train.learner import reseed
from hqlt_lab.train.optimiser import adamw
from hqlt_lab.train.progress import Metrics
from hqlt_lab.train.schedule import factor
from hqlt_lab.train.trainer import REPEATING_PRODUCTS, accelerator, precision

ACTING, LEARNING = 0, 1  # streams of random numbers


@dataclass
class Counts:
    """How far a life has come."""

    steps: int = 0  # in the world
    episodes: int = 0
    updates: int = 0  # of the weights
    looked: int = -1  # the step of the last validation; -1: there was none
    told: int = 0  # the step up to which the curves are told


class Life:
    """One run's agent, and what it has lived."""

    def __init__(self, cell: Cell, world: World, folder: Path, stored: Mapping[str, Any] | None = None) -> None:
        assert cell.agent is not None
        self.cell, self.world, self.settings = cell, world, cell.agent
        self.agent = build_agent(cell, world)
        in_precision(self.agent, cell.trainer)
        self.targets = deepcopy(self.agent.critics)
        self.optimizer = adamw(self.agent, cell.train)
        self.counts = Counts()
        if stored is not None:
            self.restore(stored)
        self.replay = Replay(folder, world, self.settings.replay, self.counts.episodes)
        self.curves: Metrics = {}  # of the last update

    @property
    def updates_due(self) -> int:
        """So many updates, in all, are the steps worth that were lived."""
        if self.counts.episodes < self.settings.warmup_episodes:
            return 0
        return int(self.settings.updates_per_step * self.counts.steps)

    def live(self) -> Episodes:
        """The next episodes, at random as long as it is the warm-up."""
        first, left = self.counts.episodes, self.settings.warmup_episodes - self.counts.episodes
        count = min(self.settings.episodes_at_once, left) if left > 0 else self.settings.episodes_at_once
        reseed(self.agent.device, self.cell.seed, ACTING, first)
        scene = self.world.begin("train", self.cell.seed, first, count)
        actor = self.wandering(first, count) if left > 0 else Acting(self.agent.train(), greedy=False)
        lived = live(scene, actor, self.world.horizon)
        self.replay.add(lived)
        self.counts.episodes += count
        self.counts.steps += lived.steps
        return lived

    def wandering(self, first: int, count: int) -> Actor:
        """Who acts in the warm-up."""
        draws = self.world.draws("train", self.cell.seed, first, count)
        return Wandering(draws, len(self.world.actions), self.world.horizon)

    def losses(self) -> Losses:
        """Of the next update."""
        reseed(self.agent.device, self.cell.seed, LEARNING, self.counts.updates)
        batch = self.replay.batch(self.cell.seed, self.counts.updates, self.cell.train.batch_size)
        return losses(self.agent, self.targets, batch.to(self.agent.device), self.settings)

    def learn(self) -> None:
        """One update: measure, complain, clip, step; then the slow copies follow."""
        found, train = self.losses(), self.cell.train
        self.optimizer.zero_grad()
        found.total.backward()
        norm = get_total_norm([each.grad for each in self.agent.parameters() if each.grad is not None])
        *told, size = torch.stack([*found, norm]).detach().tolist()
        guard(self.counts.steps, told[0], size, overflow_is_normal=False)
        if train.clip is not None:
            clip_grads_with_norm_(self.agent.parameters(), train.clip, norm)
        rate = train.lr * factor(train, self.counts.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        follow(self.targets, self.agent.critics, self.settings.target_rate)
        self.counts.updates += 1
        names = ("loss", "critic_loss", "actor_loss", "entropy", "value", "gradient_norm", "lr")
        self.curves = dict(zip((f"train/{name}" for name in names), [*told, size, rate], strict=True))

    def stored(self) -> dict[str, Any]:
        """What it takes to go on from here."""
        self.replay.flush()
        return {
            "state_dict": self.weights(),
            "targets": self.targets.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "counts": asdict(self.counts),
            "curves": self.curves,
            "global_step": self.counts.steps,
        }

    def weights(self) -> dict[str, Tensor]:
        """By the names that checkpoints have for them."""
        return {f"model.{name}": value for name, value in self.agent.state_dict().items()}

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """The same, backwards."""
        self.agent.load_state_dict({name.removeprefix("model."): value for name, value in weights.items()})

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.load_weights(stored["state_dict"])
        self.targets.load_state_dict(stored["targets"])
        self.optimizer.load_state_dict(stored["optimizer"])
        self.counts, self.curves = Counts(**stored["counts"]), dict(stored["curves"])


def in_precision(agent: Any, trainer: TrainerConfig) -> Agent:
    """The same agent on its device; encoder and memory compute in its precision, policy and critics in 32 bits."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", REPEATING_PRODUCTS)
    torch.use_deterministic_algorithms(trainer.deterministic)  # Fabric leaves both to others, a Trainer does not
    alone = LightningEnvironment()  # else it looks for others on every machine that has SLURM
    fabric = Fabric(accelerator=accelerator(trainer), devices=1, precision=precision(trainer), plugins=[alone])
    agent.to(fabric.device, torch.float64 if trainer.precision == "64" else None)
    agent.precision = fabric.autocast
    return agent


def build_agent(cell: Cell, world: World) -> Agent:
    """The agent at its beginning."""
    assert cell.agent is not None
    config = model_config(cell.model)
    agent = Agent(world, config, cell.agent)
    initialise(agent, config, cell.seed)
    agent.memory.use(cell.ops).recompute(cell.train.recompute)
    return agent
