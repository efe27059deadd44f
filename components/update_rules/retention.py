"""Retention: every memory fades at the pace of its head.

    S_t = gamma_h S_{t-1} + v_t k_t^T,   gamma_h = 1 - 2^-(5 + h)        keep gamma, erase 0, write 1

Head 0 remembers about 32 tokens, each further head twice as many.  Nothing is learned and nothing is chosen by the
content. The feature map gives unit keys, so that the memory stays below 2^(5 + h) values in size.

    update_rule: retention

Sun et al. 2023, arXiv:2307.08621 (there with rotated raw queries and keys).
"""

import torch
from torch import Tensor

from hqlt_lab.components.update_rules._base import LinearRule
from hqlt_lab.ops.steps import Gates
from hqlt_lab.registry import register


@register("update_rule", "retention")
class Retention(LinearRule):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def gates(self, x: Tensor) -> Gates:
        # from float64: 1 - 2^-40 is 1 in float32, and its logarithm 0
        pace = torch.log1p(-torch.exp2(-5.0 - torch.arange(self.heads, dtype=torch.float64, device=x.device)))
        kind = torch.promote_types(x.dtype, torch.float32)
        return Gates(log_keep=pace.to(kind)[:, None].expand(len(x), -1, x.shape[1]))  # [B, H, T]
