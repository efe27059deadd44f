"""Separate: every channel of each memory has a gate of its own.

y = c * fw + d * kv,   (c, d) = sigmoid(W x), one per channel each

mixer: separate
"""

from torch import Tensor, nn

from hqlt_lab.components.mixers._base import Mixer, by_head
from hqlt_lab.registry import register


@register("mixer", "separate")
class Separate(Mixer):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_gates = nn.Linear(width, 2 * width, bias=False)

    def forward(self, x: Tensor, fw: Tensor, kv: Tensor) -> Tensor:
        c, d = by_head(self.to_gates(x).sigmoid(), self.heads).chunk(2, -1)  # [B, H, T, V] each
        return c * fw + d * kv
