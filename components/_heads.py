"""Heads: channels split into heads, and RMSNorm over the channels of a head."""

import torch.nn.functional as F
from torch import Tensor, nn


class HeadNorm(nn.RMSNorm):
    """RMSNorm that casts its weight to the dtype of its input, as linear maps do: torch fuses only that case."""

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


def split_heads(u: Tensor, heads: int) -> Tensor:
    """Reshape [B, T, H * n] to [B, H, T, n]."""
    return u.unflatten(-1, (heads, -1)).transpose(1, 2)
