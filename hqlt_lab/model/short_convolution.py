"""Short causal convolution: each channel mixes its last few tokens before they become queries, keys or values.

y_t = sum_j w_j * x_{t - j}                 per channel, j < taps, zeros before the document
"""

import torch
from torch import Tensor, nn

from hqlt_lab.model.batch_layout import TokenPositions
from hqlt_lab.model.state import keep_last_tokens


class ShortConvolution(nn.Conv1d):
    """Depthwise causal convolution, which returns the inputs that the next call needs as its state."""

    def __init__(self, channels: int, taps: int, bias: bool = False) -> None:
        super().__init__(channels, channels, taps, groups=channels, bias=bias)
        self.taps = taps

    def forward(  # type: ignore[override]
        self, x: Tensor, token_positions: TokenPositions, conv_state: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return y [B, T, C] and the new state, for x [B, T, C] and the state of the last call [B, C, taps - 1]."""
        if conv_state is None:
            conv_state = x.new_zeros(len(x), x.shape[-1], self.taps - 1)
        x = torch.cat([conv_state, x.mT], -1)
        y = self.convolve_documents(x, token_positions.position) if token_positions.is_packed else super().forward(x)
        return y.mT, keep_last_tokens(x, self.taps - 1, token_positions)

    def convolve_documents(self, x: Tensor, position: Tensor) -> Tensor:
        """Convolve tap by tap, so that each token can ignore inputs from before its document."""
        length = position.shape[1]
        y = torch.zeros_like(x[:, :, :length])
        for offset in range(self.taps):
            start = self.taps - 1 - offset
            tap = self.weight[:, :, start].to(x.dtype)  # [C, 1]; under autocast x has a lower precision
            y = y + tap * x[:, :, start : start + length] * (position >= offset)[:, None]
        return y if self.bias is None else y + self.bias.to(x.dtype)[:, None]
