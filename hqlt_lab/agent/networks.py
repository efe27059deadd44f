"""The agent's networks: one memory of the observations, shared by the policy and two critics.

    h_t = memory(encode(o_0), ..., encode(o_t))        pi_t = softmax(policy(h_t))        q_t = critic_i(h_t)

Images are encoded as in the paper: two 2 x 2 convolutions with 8 and 16 channels, and a linear layer to the width of
the memory; other observations by the linear layer only.  Actions and rewards are not part of the input.  The outputs of
policy and critics are initialized near 0, so that at first all actions have nearly equal probabilities and values.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.run_settings import AgentConfig
from hqlt_lab.model.config import ModelConfig
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.model.state import State
from hqlt_lab.tasks._environment import Environment

CHANNELS, KERNEL = (8, 16), 2
HIDDEN_BIAS = 0.1
POLICY_INIT_BOUND, CRITIC_INIT_BOUND = 1e-3, 3e-3  # bounds of the uniform initialization of the last layer


class ObservationEncoder(nn.Module):
    """Encode observations [B, T, *shape] of unsigned integers as [B, T, width]."""

    def __init__(self, observation_shape: Sequence[int], max_observation: int, width: int) -> None:
        super().__init__()
        if len(observation_shape) not in (1, 3):
            message = f"an image (channels, rows, columns) or a vector is needed, got {list(observation_shape)}."
            raise ConfigError.at("observation_shape", "invalid_observation_shape", message)
        self.max_observation, self.convolutions = max_observation, nn.ModuleList()
        if len(observation_shape) == 3:
            channels = zip((observation_shape[0], CHANNELS[0]), CHANNELS, strict=True)
            self.convolutions.extend(nn.Conv2d(inputs, outputs, KERNEL) for inputs, outputs in channels)
            border = len(CHANNELS) * (KERNEL - 1)
            observation_shape = (CHANNELS[-1], observation_shape[1] - border, observation_shape[2] - border)
        self.to_width = nn.Linear(math.prod(observation_shape), width)

    def reset_parameters(self) -> None:
        """Initialize the linear layer with torch's default, as the convolutions."""
        self.to_width.reset_parameters()

    def forward(self, observations: Tensor) -> Tensor:
        x = observations.flatten(0, 1).to(self.to_width.weight.dtype) / self.max_observation
        for convolution in self.convolutions:
            x = F.relu(convolution(x))
        return self.to_width(x.flatten(1)).unflatten(0, observations.shape[:2])


class ActionHead(nn.Module):
    """An MLP from h [..., width] to one output per action [..., actions]."""

    def __init__(self, width: int, hidden: Sequence[int], actions: int, init_bound: float) -> None:
        super().__init__()
        sizes = [width, *hidden, actions]
        self.maps = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(sizes))
        self.init_bound = init_bound

    def reset_parameters(self) -> None:
        """Initialize as in the code of the HQLT paper: the bound of hidden weights depends on the number of outputs."""
        *inner, last = self.maps
        for layer in inner:
            bound = 1 / math.sqrt(layer.out_features)  # type: ignore[arg-type]
            nn.init.uniform_(layer.weight, -bound, bound)  # type: ignore[arg-type]
            nn.init.constant_(layer.bias, HIDDEN_BIAS)  # type: ignore[arg-type]
        for parameter in last.parameters():
            nn.init.uniform_(parameter, -self.init_bound, self.init_bound)

    def forward(self, h: Tensor) -> Tensor:
        *inner, last = self.maps
        for layer in inner:
            h = F.relu(layer(h))
        return last(h)


class Agent(nn.Module):
    """Encoder, memory, policy and critics.

    forward(observations [B, T, *shape], state) -> h [B, T, width], state.  Splitting the observations over several
    calls gives the same h.
    """

    def __init__(self, environment: Environment, config: ModelConfig, settings: AgentConfig) -> None:
        super().__init__()
        width, actions = config.width, len(environment.action_names)
        self.encoder = ObservationEncoder(environment.observation_shape, environment.max_observation, width)
        self.memory = SequenceModel(config)
        self.policy = ActionHead(width, settings.hidden, actions, POLICY_INIT_BOUND)
        self.critics = nn.ModuleList(ActionHead(width, settings.hidden, actions, CRITIC_INIT_BOUND) for _ in range(2))
        self.autocast: Callable[[], AbstractContextManager[None]] = nullcontext  # precision of encoder and memory

    @property
    def device(self) -> torch.device:
        return self.encoder.to_width.weight.device

    def forward(self, observations: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        with self.autocast():
            h, state = self.memory(self.encoder(observations), state)
        return h.to(self.encoder.to_width.weight.dtype), state
