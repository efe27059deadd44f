"""Rotary positions: a key is turned by its place, so that softmax compares distances.

    pairs (u_i, u_{i + K/2}) turn by the angle place * base^(-2i / K)

Only differences of places matter.  Queries and keys of the softmax are turned; the fast weights get them raw.

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
    def __init__(self, width: int, heads: int, base: WaveBase = 10000.0) -> None:
        super().__init__()
        if width // heads % 2:
            raise ConfigError(f"name: rope turns pairs of channels, and a head of {width // heads} has an odd number.")
        if base <= 0:
            raise ConfigError(f"base: more than 0 is needed, got {base}.")
        self.base = base

    def turn(self, u: Tensor, place: Tensor) -> Tensor:
        half = u.shape[-1] // 2
        # in float64 up to the waves: a bfloat16 place is off by whole tokens, a float32 angle at 100,000 by a hundredth
        speed = self.base ** (-torch.arange(half, device=u.device, dtype=torch.float64) / half)
        angle = place[:, None, :, None] * speed  # [B, 1, T, K / 2]
        cos, sin = (wave.to(torch.promote_types(u.dtype, torch.float32)) for wave in (angle.cos(), angle.sin()))
        a, b = u[..., :half], u[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(u.dtype)
