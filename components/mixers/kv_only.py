"""Softmax only: the fast weights are not computed.

    y = kv

Without a window (`timing: {name: synchronous, window: null}`) this is a Transformer.

    mixer: kv_only
"""

from torch import Tensor

from hqlt_lab.components.mixers._base import Mixer, Weight
from hqlt_lab.registry import register


@register("mixer", "kv_only")
class KvOnly(Mixer):
    reads = ("kv",)

    def weights(self, x: Tensor) -> tuple[Weight, Weight]:
        return 0.0, 1.0

    def forward(self, x: Tensor, fw: Tensor | None, kv: Tensor) -> Tensor:
        return kv
