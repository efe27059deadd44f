"""Fast weights only: softmax is not computed.  With the delta rule this is DeltaNet.

y = fw

mixer: fw_only
"""

from torch import Tensor

from hqlt_lab.components.mixers._base import Mixer
from hqlt_lab.registry import register


@register("mixer", "fw_only")
class FwOnly(Mixer):
    reads = ("fw",)

    def forward(self, x: Tensor, fw: Tensor, kv: Tensor | None) -> Tensor:
        return fw
