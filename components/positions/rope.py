"""Rotary positions: rotate queries and keys by their position, so that softmax scores depend on distances.

    pairs (u_i, u_{i + K/2}) are rotated by the angle position * base^(-2i / K)

Scores depend only on differences of positions.  The rotation applies to the queries and keys of softmax; the fast
weights use them unrotated.

    positions: {name: rope, base: 10000}

Su et al. 2021, arXiv:2104.09864.
"""

import torch
from torch import Tensor

from hqlt_lab.components.positions._base import Positions, WaveBase
from hqlt_lab.errors import ConfigError
from hqlt_lab.registry import register


@register("positions", "rope")
class Rope(Positions):
    def __init__(self, key_dim: int, base: WaveBase = 10000.0) -> None:
        super().__init__()
        if key_dim % 2:
            message = f"rope rotates pairs of channels, and a key has an odd number of them, {key_dim}."
            raise ConfigError.at("", "odd_head_width", message, f"Use {key_dim + 1}.")
        if base <= 0:
            raise ConfigError.at("base", "not_positive", f"more than 0 is needed, got {base}.")
        self.base = base

    def rotate(self, u: Tensor, position: Tensor) -> Tensor:
        half = u.shape[-1] // 2
        # angles in float64: a bfloat16 position is off by whole tokens, a float32 angle at 100,000 by 0.01
        frequency = self.base ** (-torch.arange(half, device=u.device, dtype=torch.float64) / half)
        angle = position[:, None, :, None] * frequency  # [B, 1, T, K / 2]
        cos, sin = (wave.to(torch.promote_types(u.dtype, torch.float32)) for wave in (angle.cos(), angle.sin()))
        a, b = u[..., :half], u[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(u.dtype)
