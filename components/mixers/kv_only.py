"""Softmax only: the fast weights are not computed.  Without a window this is the Transformer.

y = kv

mixer: kv_only
"""

from torch import Tensor

from hqlt_lab.components.mixers._base import Mixer
from hqlt_lab.registry import register


@register("mixer", "kv_only")
class KvOnly(Mixer):
    reads = ("kv",)

    def forward(self, x: Tensor, fw: Tensor | None, kv: Tensor) -> Tensor:
        return kv
