"""Projections: the queries, keys and values that a memory makes of the token stream.

    q = conv(W_q x),   k = conv(W_k x),   v = activation(conv(W_v x))            conv only with `short_conv`

A layer whose memories share them has one set; otherwise each memory has a set of its own size.
"""

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from hqlt_lab.model.batch_layout import TokenPositions
from hqlt_lab.model.config import ModelConfig
from hqlt_lab.model.memory_size_config import MemorySize
from hqlt_lab.model.short_convolution import ShortConvolution

ConvState = tuple[Tensor, ...]


class ProjectedTokens(NamedTuple):
    """Queries, keys and values of the tokens of a call."""

    q: Tensor  # [B, H, T, K]
    k: Tensor  # [B, G, T * writes, K]
    v: Tensor  # [B, G, T * writes, V]
    conv: ConvState | None  # the new state of the convolutions


class ProjectingModule(nn.Module):
    """A module that has projections: a layer, or one memory of a layer."""

    to_q: nn.Linear
    to_k: nn.Linear
    to_v: nn.Linear
    convolutions: nn.ModuleList | None

    def add_projections(self, config: ModelConfig, size: MemorySize, writes: int) -> None:
        """Add the projections for a memory of this size, with `writes` keys and values per token."""
        self.projected_size, self.projected_writes = size, writes
        channels = (
            size.heads * size.key_dim,
            size.groups * size.key_dim * writes,
            size.groups * size.value_dim * writes,
        )
        self.to_q, self.to_k, self.to_v = (nn.Linear(config.width, n, bias=config.bias) for n in channels)
        self.convolutions = None
        if config.short_conv:
            self.convolutions = nn.ModuleList(ShortConvolution(n, config.short_conv) for n in channels)
        self.value_activation = F.silu if config.value_activation == "silu" else nn.Identity()

    def project(self, x: Tensor, token_positions: TokenPositions, conv_state: ConvState | None) -> ProjectedTokens:
        """Return queries, keys and values of x [B, T, width]."""
        q, k, v = self.to_q(x), self.to_k(x), self.to_v(x)
        conv = None
        if self.convolutions is not None:
            inputs = zip(self.convolutions, (q, k, v), conv_state or (None, None, None), strict=True)
            (q, k, v), conv = zip(*(convolve(u, token_positions, past) for convolve, u, past in inputs), strict=True)
        (heads, groups), writes = (self.projected_size.heads, self.projected_size.groups), self.projected_writes
        q, k = split_writes(q, heads, 1), split_writes(k, groups, writes)
        return ProjectedTokens(q, k, split_writes(self.value_activation(v), groups, writes), conv)


class Projections(ProjectingModule):
    """The projections of one memory."""

    def __init__(self, config: ModelConfig, size: MemorySize, writes: int = 1) -> None:
        super().__init__()
        self.add_projections(config, size, writes)


def split_writes(u: Tensor, heads: int, writes: int) -> Tensor:
    """Reshape [B, T, H * writes * K] to [B, H, T * writes, K]."""
    return u.unflatten(-1, (heads, writes, -1)).transpose(1, 2).flatten(2, 3)
