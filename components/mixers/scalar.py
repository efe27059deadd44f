"""Scalar: two weights per head and token, each between 0 and 1.

    y = a * fw + b * kv,   (a, b) = sigmoid(W x)

The weights a and b are independent; they need not sum to 1.

    mixer: scalar
"""

from torch import Tensor, nn

from hqlt_lab.components._heads import split_heads
from hqlt_lab.components.mixers._base import Mixer, Weight
from hqlt_lab.registry import register


@register("mixer", "scalar")
class Scalar(Mixer):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_weights = nn.Linear(width, 2 * heads, bias=False)

    def weights(self, x: Tensor) -> tuple[Weight, Weight]:
        a, b = self.to_weights(x).sigmoid().chunk(2, -1)  # [B, T, H] each
        return split_heads(a, self.heads), split_heads(b, self.heads)  # [B, H, T, 1] each
