"""A short causal convolution: each channel mixes its last few tokens before they become queries, keys or values.

y_t = sum_i w_i * x_{t - taps + 1 + i}                 per channel, zeros before the text
"""

import torch
from torch import Tensor, nn


class ShortConvolution(nn.Conv1d):
    """Depthwise, causal, without bias; hands on the inputs that the next call needs."""

    def __init__(self, channels: int, taps: int) -> None:
        super().__init__(channels, channels, taps, groups=channels, bias=False)

    def forward(self, x: Tensor, past: Tensor | None = None) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """x [B, T, C], past [B, C, taps - 1] -> y [B, T, C] and the new past."""
        if past is None:
            past = x.new_zeros(len(x), x.shape[-1], self.kernel_size[0] - 1)
        x = torch.cat([past, x.mT], -1)
        return super().forward(x).mT, x[:, :, x.shape[-1] - past.shape[-1] :]
