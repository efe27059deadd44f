"""A short causal convolution: each channel mixes its last few tokens before they become queries, keys or values.

y_t = sum_j w_j * x_{t - j}                 per channel, j < taps, zeros before the document
"""

import torch
from torch import Tensor, nn

from hqlt_lab.model.layout import Places
from hqlt_lab.model.state import kept


class ShortConvolution(nn.Conv1d):
    """Depthwise, causal, without bias; hands on the inputs that the next call needs."""

    def __init__(self, channels: int, taps: int) -> None:
        super().__init__(channels, channels, taps, groups=channels, bias=False)
        self.taps = taps

    def forward(  # type: ignore[override]
        self, x: Tensor, places: Places, past: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """x [B, T, C], past [B, C, taps - 1] -> y [B, T, C] and the new past."""
        if past is None:
            past = x.new_zeros(len(x), x.shape[-1], self.taps - 1)
        x = torch.cat([past, x.mT], -1)
        y = self.within_documents(x, places.place) if places.packed else super().forward(x)
        return y.mT, kept(x, self.taps - 1, places)

    def within_documents(self, x: Tensor, place: Tensor) -> Tensor:
        """Tap by tap, so that each token leaves out what is before its document."""
        length = place.shape[1]
        y = torch.zeros_like(x[:, :, :length])
        for back in range(self.taps):
            start = self.taps - 1 - back
            tap = self.weight[:, :, start].to(x.dtype)  # [C, 1]; under autocast x is less precise
            y = y + tap * x[:, :, start : start + length] * (place >= back)[:, None]
        return y
