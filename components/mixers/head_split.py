"""Head split: some heads use only the fast weights, the others only softmax.

    y = (fw_1, ..., fw_n, kv_{n+1}, ..., kv_H)      n = `fw_heads`

The first n heads are those of the fast weights.  Each memory is projected, computed and cached for its own heads only,
so the heads of softmax cost no fast weights, and the other way round.  With n = H it is fw_only, with n = 0 kv_only.

    mixer: {name: head_split, fw_heads: 7}

arXiv:2606.20097 (HydraHead).
"""

from typing import Annotated

import torch
from torch import Tensor

from hqlt_lab.components.mixers._base import Mixer
from hqlt_lab.errors import ConfigError
from hqlt_lab.registry import register


@register("mixer", "head_split")
class HeadSplit(Mixer):
    def __init__(
        self,
        heads: int,
        fw_heads: Annotated[
            int | None, "Number of heads that use the fast weights; null: half of them, rounded down."
        ] = None,
    ) -> None:
        super().__init__()
        fw_heads = heads // 2 if fw_heads is None else fw_heads
        if not 0 <= fw_heads <= heads:
            message = f"{fw_heads} of {heads} heads are not possible."
            raise ConfigError.at("fw_heads", "out_of_range", message, f"Use a number from 0 to {heads}.")
        self.fw_heads, self.own_heads = fw_heads, {"fw": fw_heads, "kv": heads - fw_heads}
        self.reads = tuple(name for name in Mixer.reads if self.own_heads[name])

    def contributions(self, x: Tensor, fw: Tensor | None, kv: Tensor | None) -> tuple[Tensor, Tensor]:
        mixed = self(x, fw, kv)
        is_fw = torch.arange(mixed.shape[1], device=mixed.device)[:, None, None] < self.fw_heads
        return mixed.where(is_fw, 0.0), mixed.where(~is_fw, 0.0)

    def forward(self, x: Tensor, fw: Tensor | None, kv: Tensor | None) -> Tensor:
        outputs = [output for output in (fw, kv) if output is not None]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1)
