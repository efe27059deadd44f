"""Fast weights only: softmax is not computed.

    y = fw

With the delta rule this is DeltaNet.

    mixer: fw_only
"""

from torch import Tensor

from hqlt_lab.components.mixers._base import Mixer, Weight
from hqlt_lab.registry import register


@register("mixer", "fw_only")
class FwOnly(Mixer):
    reads = ("fw",)

    def weights(self, x: Tensor) -> tuple[Weight, Weight]:
        return 1.0, 0.0

    def forward(self, x: Tensor, fw: Tensor, kv: Tensor | None) -> Tensor:
        return fw
