"""Decay gates of the form log alpha = -exp(a) softplus(W x + b), as in Mamba-2, gated delta and KDA.

    HeadDecay       one number per head, W [H, width]
    ChannelDecay    one number per key channel, W a product of two matrices of low rank

exp(a) is a rate per head, initially uniform in a range, and b is such that softplus(b) is initially log-uniform in
[0.001, 0.1].  Neither has weight decay: it would pull them toward 0 and so set how long the memory lasts.
"""

import math

import torch
from torch import Tensor, nn


def softplus(x: Tensor) -> Tensor:
    """Return log(1 + e^x).  The backward of F.softplus returns other strides than torch.compile expects."""
    return torch.logaddexp(x, torch.zeros_like(x))


@torch.no_grad()
def draw_decay_rate(log_rate: Tensor, low: float) -> None:
    """Set log_rate to the logarithm of U(low, 16), in place."""
    log_rate.uniform_(max(low, 1e-4), 16).log_()


@torch.no_grad()
def draw_decay_bias(bias: Tensor) -> None:
    """Set the bias such that softplus(bias) is log-uniform in [0.001, 0.1], in place."""
    decay_rate = bias.uniform_(math.log(1e-3), math.log(0.1)).exp_()
    bias.copy_(decay_rate + torch.log(-torch.expm1(-decay_rate)))  # the inverse of softplus


class HeadDecay(nn.Module):
    """One log-keep per head and token: forward(x [B, T, width]) -> [B, H, T]."""

    def __init__(self, width: int, heads: int, lowest_rate: float = 0.0) -> None:
        super().__init__()
        self.to_step = nn.Linear(width, heads, bias=False)
        self.log_rate, self.bias = (nn.Parameter(torch.empty(heads)) for _ in range(2))
        self.log_rate.no_decay = self.bias.no_decay = True  # type: ignore[attr-defined]
        self.lowest_rate = lowest_rate
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if not self.log_rate.is_meta:  # there are no values to draw, and meta arithmetic loads torch.compile
            draw_decay_rate(self.log_rate, self.lowest_rate)
            draw_decay_bias(self.bias)

    def step_size(self, x: Tensor) -> Tensor:
        """Return softplus(W x + b) [B, H, T], which Mamba-2 also writes with."""
        return softplus(self.to_step(x) + self.bias).mT

    def forward(self, x: Tensor) -> Tensor:
        return -self.step_size(x) * self.log_rate.exp()[:, None]


class ChannelDecay(nn.Module):
    """One log-keep per key channel and token: forward(x [B, T, width]) -> [B, H, T, K]."""

    def __init__(self, width: int, heads: int, key_dim: int, rank: int, lowest_rate: float = 1.0) -> None:
        super().__init__()
        self.heads, self.lowest_rate = heads, lowest_rate
        self.to_hidden = nn.Linear(width, rank, bias=False)
        self.to_step = nn.Linear(rank, heads * key_dim, bias=False)
        self.log_rate, self.bias = nn.Parameter(torch.empty(heads)), nn.Parameter(torch.empty(heads * key_dim))
        self.log_rate.no_decay = self.bias.no_decay = True  # type: ignore[attr-defined]
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if not self.log_rate.is_meta:
            draw_decay_rate(self.log_rate, self.lowest_rate)
            draw_decay_bias(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        step = split_channels(softplus(self.to_step(self.to_hidden(x)) + self.bias), self.heads)
        return -step * self.log_rate.exp()[:, None, None]


def split_channels(x: Tensor, heads: int) -> Tensor:
    """Reshape [B, T, H * K] to [B, H, T, K]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)
