"""Separate: every channel of each memory has a gate of its own.

y = c * fw + d * kv,   (c, d) = sigmoid(W x), one per channel each

mixer: separate
"""

from torch import Tensor, nn

from hqlt_lab.components.mixers._base import Mixer, Weight, by_head
from hqlt_lab.registry import register


@register("mixer", "separate")
class Separate(Mixer):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_gates = nn.Linear(width, 2 * width, bias=False)

    def weights(self, x: Tensor) -> tuple[Weight, Weight]:
        c, d = by_head(self.to_gates(x).sigmoid(), self.heads).chunk(2, -1)  # [B, H, T, V] each
        return c, d
