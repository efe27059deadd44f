"""Vector: a gate per channel interpolates between the two memories.

    y = c * fw + (1 - c) * kv,   c = sigmoid(W x), one per channel

With width 1024 and 24 layers its gates have 25 million parameters; a plain sum has none.

    mixer: vector
"""

from torch import Tensor, nn

from hqlt_lab.components._heads import split_heads
from hqlt_lab.components.mixers._base import Mixer, Weight
from hqlt_lab.registry import register


@register("mixer", "vector")
class Vector(Mixer):
    def __init__(self, width: int, heads: int, value_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_choice = nn.Linear(width, heads * value_dim, bias=False)

    def weights(self, x: Tensor) -> tuple[Weight, Weight]:
        choice = split_heads(self.to_choice(x).sigmoid(), self.heads)  # [B, H, T, V]
        return choice, 1 - choice
