"""Soft actor-critic: an agent with its optimizer, which collects episodes and updates its weights.

The training loop is in `fit_agent`.

    iteration   collect some episodes into the replay buffer; then make as many updates as their steps allow
    updates     floor(updates_per_step * steps) in total, once the warm-up is over

A run can be resumed exactly, because random numbers are a function of counters: dropout and sampled actions of
(seed, episode) or (seed, update), batches of (seed, update), episodes of (seed, number).  A checkpoint holds the
weights, the optimizer state, the target critics and the counters; the episodes are in a separate file
(`agent/replay_buffer.py`).
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.fabric import Fabric
from lightning.fabric.plugins.environments import LightningEnvironment
from torch import Tensor

from hqlt_lab.agent.action_selection import PolicyActor, RandomActor
from hqlt_lab.agent.networks import Agent
from hqlt_lab.agent.replay_buffer import ReplayBuffer
from hqlt_lab.agent.rollout import Actor, Episodes, collect_rollout
from hqlt_lab.agent.sac import SacLosses, sac_losses, soft_update
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.run_settings import TrainerConfig
from hqlt_lab.model.config import model_config
from hqlt_lab.model.initialize import initialize_parameters
from hqlt_lab.process_settings import TRAINING_ENV, set_env_defaults
from hqlt_lab.tasks._environment import Environment
from hqlt_lab.train.divergence import clip_gradients, compute_gradient_norm, raise_if_not_finite
from hqlt_lab.train.lightning_module import seed_generators
from hqlt_lab.train.optim import build_adamw, lr_factor
from hqlt_lab.train.per_memory_training import drop_frozen_gradients, zero_waiting_memories
from hqlt_lab.train.trainer import lightning_accelerator, lightning_precision
from hqlt_lab.train.trainer_state import Metrics

ACTING_STREAM, UPDATE_STREAM = 0, 1  # independent streams of random numbers


@dataclass
class LoopCounters:
    """Counters of a run, from which random numbers and due updates are derived."""

    steps: int = 0  # in the environment
    episodes: int = 0
    updates: int = 0  # optimizer steps
    last_validated: int = -1  # environment step of the last validation; -1: none yet
    last_logged: int = 0  # environment step of the last log


class SacTrainer:
    """The agent of one run with its target critics, optimizer, replay buffer and counters."""

    def __init__(
        self, cell: Cell, environment: Environment, folder: Path, checkpoint: Mapping[str, Any] | None = None
    ) -> None:
        assert cell.agent is not None
        self.cell, self.environment, self.agent_config = cell, environment, cell.agent
        self.agent = build_agent(cell, environment)
        set_up_agent_device(self.agent, cell.trainer)
        self.target_critics = deepcopy(self.agent.critics)
        self.optimizer = build_adamw(self.agent, cell.train)
        self.counters = LoopCounters()
        self.update_metrics: Metrics = {}  # train/... of the last update
        if checkpoint is not None:
            self.load_state_dict(checkpoint)
        self.replay = ReplayBuffer(folder, environment, self.agent_config.replay, self.counters.episodes)

    @property
    def num_updates_due(self) -> int:
        """The total number of updates for the environment steps so far; 0 during the warm-up."""
        if self.counters.episodes < self.agent_config.warmup_episodes:
            return 0
        return int(self.agent_config.updates_per_step * self.counters.steps)

    def collect_episodes(self) -> Episodes:
        """Collect the next episodes, with random actions during the warm-up, and add them to the replay buffer."""
        first = self.counters.episodes
        warmup_left = self.agent_config.warmup_episodes - first
        at_once = self.agent_config.episodes_at_once
        count = min(at_once, warmup_left) if warmup_left > 0 else at_once
        seed_generators(self.agent.device, self.cell.seed, ACTING_STREAM, first)
        zero_waiting_memories(self.agent, self.cell.train, self.counters.steps)
        vector_env = self.environment.reset("train", self.cell.seed, first, count)
        if warmup_left > 0:
            actor = self.make_random_actor(first, count)
        else:
            actor = PolicyActor(self.agent.train(), greedy=False)
        episodes = collect_rollout(vector_env, actor, self.environment.max_episode_steps)
        self.replay.add_episodes(episodes)
        self.counters.episodes += count
        self.counters.steps += episodes.total_steps
        return episodes

    def make_random_actor(self, first: int, count: int) -> Actor:
        """Return the actor of the warm-up, which takes random actions."""
        rng = self.environment.make_rng("train", self.cell.seed, first, count)
        return RandomActor(rng, len(self.environment.action_names), self.environment.max_episode_steps)

    def compute_losses(self) -> SacLosses:
        """Return the losses of the next update."""
        seed_generators(self.agent.device, self.cell.seed, UPDATE_STREAM, self.counters.updates)
        zero_waiting_memories(self.agent, self.cell.train, self.counters.steps)
        batch = self.replay.sample_batch(self.cell.seed, self.counters.updates, self.cell.train.batch_size)
        return sac_losses(self.agent, self.target_critics, batch.to(self.agent.device), self.agent_config)

    def update_weights(self) -> None:
        """Make one update of the agent and its target critics.  Raise DivergenceError if a loss is not finite."""
        losses, train = self.compute_losses(), self.cell.train
        self.optimizer.zero_grad()
        losses.total.backward()
        norm = compute_gradient_norm(self.agent.parameters())
        *loss_values, norm_value = torch.stack([*losses, norm]).detach().tolist()
        raise_if_not_finite(self.counters.steps, loss_values[0], norm_value, allow_overflow=False)
        clip_gradients(self.agent.parameters(), train.clip, norm)
        drop_frozen_gradients(self.agent, train, self.counters.steps)
        lr = train.lr * lr_factor(train, self.counters.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group.get("lr_scale", 1.0)
        self.optimizer.step()
        soft_update(self.target_critics, self.agent.critics, self.agent_config.target_rate)
        self.counters.updates += 1
        names = ("loss", "critic_loss", "actor_loss", "entropy", "value", "gradient_norm", "lr")
        values = [*loss_values, norm_value, lr]
        self.update_metrics = dict(zip((f"train/{name}" for name in names), values, strict=True))

    def state_dict(self) -> dict[str, Any]:
        """Flush the replay buffer and return the content of a checkpoint."""
        self.replay.flush()
        return {
            "state_dict": self.checkpoint_weights(),
            "targets": self.target_critics.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "counts": asdict(self.counters),
            "curves": self.update_metrics,
            "global_step": self.counters.steps,
        }

    def checkpoint_weights(self) -> dict[str, Tensor]:
        """Return the weights of the agent by their names in checkpoints (model.*)."""
        return {f"model.{name}": value for name, value in self.agent.state_dict().items()}

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Load the weights of a checkpoint (model.*) into the agent."""
        self.agent.load_state_dict({name.removeprefix("model."): value for name, value in weights.items()})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self.load_weights(state["state_dict"])
        self.target_critics.load_state_dict(state["targets"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.counters, self.update_metrics = LoopCounters(**state["counts"]), dict(state["curves"])


def set_up_agent_device(agent: Any, trainer_config: TrainerConfig) -> Agent:
    """Move an agent to its device and set its autocast.  Encoder and memory use it; policy and critics are float32."""
    set_env_defaults(TRAINING_ENV)
    torch.use_deterministic_algorithms(trainer_config.deterministic)  # Fabric, unlike Trainer, sets neither
    single_process = LightningEnvironment()  # otherwise Fabric looks for other processes in a SLURM job
    fabric = Fabric(
        accelerator=lightning_accelerator(trainer_config),
        devices=1,
        precision=lightning_precision(trainer_config),
        plugins=[single_process],
    )
    agent.to(fabric.device, torch.float64 if trainer_config.precision == "64" else None)
    agent.autocast = fabric.autocast
    return agent


def build_agent(cell: Cell, environment: Environment) -> Agent:
    """Build the agent of a cell with its initial weights and settings."""
    assert cell.agent is not None
    config = model_config(cell.model)
    agent = Agent(environment, config, cell.agent)
    initialize_parameters(agent, config, cell.seed)
    agent.memory.set_backends(cell.ops).set_recompute(cell.train.recompute)
    return agent
