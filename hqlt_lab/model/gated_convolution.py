"""Gated convolution: a layer without a memory, which mixes each token with the last few.

y_t = conv(x)_t * (W x_t + b) + x_t         conv: 3 taps per channel, with bias, zeros before the document

It computes the products of neighboring tokens that a memory behind it stores.  `model.layer_kind: [gated_conv, memory]`
puts one in front of each memory.

BaseConv in Arora et al. 2023, arXiv:2312.04927.
"""

from torch import Tensor, nn

from hqlt_lab.model.batch_layout import TokenPositions, compute_token_positions
from hqlt_lab.model.short_convolution import ShortConvolution
from hqlt_lab.model.state import MemoryState

TAPS = 3


class GatedConvolution(nn.Module):
    """forward(x [B, T, width], state, token_positions) -> y [B, T, width], state, as in `HybridMemory`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolutions = ShortConvolution(width, TAPS, bias=True)
        self.to_gate = nn.Linear(width, width)

    @property
    def state_numbers(self) -> int:
        """Numbers of the state of one row, without the document length."""
        return self.to_gate.in_features * (TAPS - 1)

    def forward(
        self, x: Tensor, state: MemoryState | None = None, token_positions: TokenPositions | None = None
    ) -> tuple[Tensor, MemoryState]:
        if token_positions is None:
            token_positions = compute_token_positions(x, None if state is None else state.document_length)
        past = None if state is None or state.conv is None else state.conv[0]
        convolved, conv = self.convolutions(x, token_positions, past)
        return convolved * self.to_gate(x) + x, MemoryState(token_positions.document_length, None, None, (conv,))
