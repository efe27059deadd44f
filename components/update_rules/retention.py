"""Retention: the memory of each head decays at a fixed rate.

    S_t = gamma_h S_{t-1} + v_t k_t^T,   gamma_h = 1 - 2^-(5 + h)        keep gamma, erase 0, write 1

The time constant of head 0 is 32 tokens, and that of each further head twice as long.  The decay is not learned and
does not depend on the content.  With unit keys the norm of the memory is at most 2^(5 + h) times that of a value.

    update_rule: retention

Sun et al. 2023, arXiv:2307.08621 (there with rotated raw queries and keys).
"""

import torch
from torch import Tensor

from hqlt_lab.components.update_rules._base import LinearRule
from hqlt_lab.ops.gates import Gates
from hqlt_lab.registry import register


@register("update_rule", "retention")
class Retention(LinearRule):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def gates(self, x: Tensor) -> Gates:
        # in float64, since 1 - 2^-40 is 1 in float32 and its logarithm 0
        log_gamma = torch.log1p(-torch.exp2(-5.0 - torch.arange(self.heads, dtype=torch.float64, device=x.device)))
        dtype = torch.promote_types(x.dtype, torch.float32)
        return Gates(log_keep=log_gamma.to(dtype)[:, None].expand(len(x), -1, x.shape[1]))  # [B, H, T]
