"""Softmax: two weights per head and token that sum to 1.

    y = a * fw + b * kv,   (a, b) = softmax(W x)

Unlike the weights of `scalar`, a and b compete: what one memory gains, the other loses.

    mixer: softmax
"""

from torch import Tensor, nn

from hqlt_lab.components._heads import split_heads
from hqlt_lab.components.mixers._base import Mixer, Weight
from hqlt_lab.registry import register


@register("mixer", "softmax")
class Softmax(Mixer):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_logits = nn.Linear(width, 2 * heads, bias=False)

    def weights(self, x: Tensor) -> tuple[Weight, Weight]:
        a, b = self.to_logits(x).unflatten(-1, (2, -1)).softmax(-2).unbind(-2)  # [B, T, H] each
        return split_heads(a, self.heads), split_heads(b, self.heads)  # [B, H, T, 1] each
