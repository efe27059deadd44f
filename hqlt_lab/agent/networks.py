"""The agent's networks: one memory of what was seen, read by the policy and by two critics.

    h_t = memory(encode(o_0), ..., encode(o_t))        pi_t = softmax(policy(h_t))        q_t = critic_i(h_t)

The encoder of images is the paper's: two convolutions of 2 x 2, to 8 and 16 channels, and a linear map to the width of
the memory; of other observations, the linear map alone.  Neither actions nor rewards are read.  Policy and critics
begin near 0, so that at first all actions are as good and as probable as each other.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.agent import AgentConfig
from hqlt_lab.model.config import ModelConfig
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.model.state import State
from hqlt_lab.tasks._world import World

CHANNELS, KERNEL = (8, 16), 2
HIDDEN_BIAS = 0.1
POLICY_START, CRITIC_START = 1e-3, 3e-3  # how far from 0 the last weights begin


class Encoder(nn.Module):
    """Observations [B, T, *shape] as they are stored -> [B, T, width]."""

    def __init__(self, shape: Sequence[int], brightest: int, width: int) -> None:
        super().__init__()
        if len(shape) not in (1, 3):
            raise ConfigError(f"shape: an image (channels, rows, columns) or numbers are needed, got {list(shape)}.")
        self.brightest, self.convolutions = brightest, nn.ModuleList()
        if len(shape) == 3:
            sizes = zip((shape[0], CHANNELS[0]), CHANNELS, strict=True)
            self.convolutions.extend(nn.Conv2d(before, after, KERNEL) for before, after in sizes)
            lost = len(CHANNELS) * (KERNEL - 1)
            shape = (CHANNELS[-1], shape[1] - lost, shape[2] - lost)
        self.to_width = nn.Linear(math.prod(shape), width)

    def reset_parameters(self) -> None:
        """The linear map begins as torch's do, as the convolutions."""
        self.to_width.reset_parameters()

    def forward(self, seen: Tensor) -> Tensor:
        x = seen.flatten(0, 1).to(self.to_width.weight.dtype) / self.brightest
        for convolution in self.convolutions:
            x = F.relu(convolution(x))
        return self.to_width(x.flatten(1)).unflatten(0, seen.shape[:2])


class Head(nn.Module):
    """h [..., width] -> a number for each action [..., actions]."""

    def __init__(self, width: int, hidden: Sequence[int], actions: int, start: float) -> None:
        super().__init__()
        sizes = [width, *hidden, actions]
        self.maps = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(sizes))
        self.start = start

    def reset_parameters(self) -> None:
        """As in the authors' code: hidden weights by the number of outputs."""
        *inner, last = self.maps
        for one in inner:
            bound = 1 / math.sqrt(one.out_features)  # type: ignore[arg-type]
            nn.init.uniform_(one.weight, -bound, bound)  # type: ignore[arg-type]
            nn.init.constant_(one.bias, HIDDEN_BIAS)  # type: ignore[arg-type]
        for parameter in last.parameters():
            nn.init.uniform_(parameter, -self.start, self.start)

    def forward(self, h: Tensor) -> Tensor:
        *inner, last = self.maps
        for one in inner:
            h = F.relu(one(h))
        return last(h)


class Agent(nn.Module):
    """forward(observations [B, T, *shape], state) -> h [B, T, width], state: one call or many give the same."""

    def __init__(self, world: World, config: ModelConfig, settings: AgentConfig) -> None:
        super().__init__()
        width, actions = config.width, len(world.actions)
        self.encoder = Encoder(world.shape, world.brightest, width)
        self.memory = SequenceModel(config)
        self.policy = Head(width, settings.hidden, actions, POLICY_START)
        self.critics = nn.ModuleList(Head(width, settings.hidden, actions, CRITIC_START) for _ in range(2))
        self.precision: Callable[[], AbstractContextManager[None]] = nullcontext  # what encoder and memory compute in

    @property
    def device(self) -> torch.device:
        return self.encoder.to_width.weight.device

    def forward(self, seen: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        with self.precision():
            h, state = self.memory(self.encoder(seen), state)
        return h.to(self.encoder.to_width.weight.dtype), state
