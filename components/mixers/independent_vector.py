"""Independent vector: two independent gates per channel, one for each memory.

    y = c * fw + d * kv,   (c, d) = sigmoid(W x), one per channel each

Unlike the gates c and 1 - c of `vector`, c and d need not sum to 1.

    mixer: independent_vector
"""

from torch import Tensor, nn

from hqlt_lab.components._heads import split_heads
from hqlt_lab.components.mixers._base import Mixer, Weight
from hqlt_lab.registry import register


@register("mixer", "independent_vector")
class IndependentVector(Mixer):
    def __init__(self, width: int, heads: int, value_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_gates = nn.Linear(width, 2 * heads * value_dim, bias=False)

    def weights(self, x: Tensor) -> tuple[Weight, Weight]:
        c, d = split_heads(self.to_gates(x).sigmoid(), self.heads).chunk(2, -1)  # [B, H, T, V] each
        return c, d
