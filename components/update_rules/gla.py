"""Gated linear attention: every key channel of the memory decays by its own learned gate.

    S_t = diag(alpha_t) S_{t-1} + k_t v_t^T                keep alpha per key channel, erase 0, write 1
    log alpha_t = logsigmoid(W_2 W_1 x_t + b) / 16         W_1 of rank 16

The division by 16 keeps alpha close to 1: it starts at 0.96.  Keys and queries are used as projected.  The memory does
not look anything up, so keys of any length are safe.

    update_rule: gla

Yang et al. 2023, arXiv:2312.06635.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from hqlt_lab.components.update_rules._base import LinearRule
from hqlt_lab.components.update_rules._learned_decay import split_channels
from hqlt_lab.ops.gates import Gates
from hqlt_lab.registry import register

RANK = 16
TEMPERATURE = 16.0


@register("update_rule", "gla")
class Gla(LinearRule):
    has_key_channels = True
    feature_map = "identity"

    def __init__(self, width: int, heads: int, key_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_hidden = nn.Linear(width, RANK, bias=False)
        self.to_keep = nn.Linear(RANK, heads * key_dim)

    def gates(self, x: Tensor) -> Gates:
        keep = split_channels(self.to_keep(self.to_hidden(x)), self.heads)  # [B, H, T, K]
        return Gates(log_keep=F.logsigmoid(keep) / TEMPERATURE)
