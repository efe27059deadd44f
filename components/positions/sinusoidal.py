"""Sinusoidal positions: sines and cosines of the position are added to the embedded tokens.

    x_t += (sin(t w_0), cos(t w_0), sin(t w_1), cos(t w_1), ...),   w_i = base^(-2i / width)

The positions are part of the input, so both memories receive them.

    positions: sinusoidal

Vaswani et al. 2017, arXiv:1706.03762.
"""

import torch
from torch import Tensor

from hqlt_lab.components.positions._base import Positions, WaveBase
from hqlt_lab.registry import register


@register("positions", "sinusoidal")
class Sinusoidal(Positions):
    def __init__(self, base: WaveBase = 10000.0) -> None:
        super().__init__()
        self.base = base

    def embed(self, x: Tensor, position: Tensor) -> Tensor:
        width = x.shape[-1]
        frequency = self.base ** (-torch.arange(0, width, 2, device=x.device, dtype=torch.float64) / width)
        angle = position[..., None] * frequency  # [B or 1, T, width / 2]
        wave = torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)[..., :width]
        return x + wave.to(x.dtype)
