"""Static: two learned weights per layer, the same for all tokens.

    y = a * fw + b * kv,   a and b are initialized to 1

At initialization it equals `sum`.

    mixer: static
"""

import torch
from torch import Tensor, nn

from hqlt_lab.components.mixers._base import Mixer, Weight
from hqlt_lab.registry import register


@register("mixer", "static")
class Static(Mixer):
    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Parameter(torch.empty(2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.both)

    def weights(self, x: Tensor) -> tuple[Weight, Weight]:
        return self.both[0], self.both[1]
