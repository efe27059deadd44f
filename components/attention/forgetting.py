"""Forgetting attention (FoX): softmax whose scores decay with a forget gate per token and head.

    kv_t = sum_s softmax_s(q_t . k_s / sqrt(K) + sum_{s < r <= t} log f_r) v_s,    f_t = sigmoid(w . x_t + b)

f = 1 is plain softmax.  A gate near 0 hides all tokens before it.  A constant f is ALiBi with slope -log f, so that
positions may be left out.  b is initialized to 0.  The sums of the log gates are kept in float64 and restart at each
document; a state holds one number per cached token and head for them.

    attention: forgetting
    positions: none

The options are those of softmax.  Lin et al. 2025, arXiv:2503.02130.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from hqlt_lab.components.attention._options import Gate, LogitScale, QkNorm, SoftmaxWithOptions
from hqlt_lab.ops.precision import at_least_float32
from hqlt_lab.registry import register


@register("attention", "forgetting")
class Forgetting(SoftmaxWithOptions):
    def __init__(
        self,
        width: int,
        heads: int,
        key_dim: int,
        value_dim: int,
        qk_norm: QkNorm = False,
        gate: Gate = "none",
        logit_scale: LogitScale = "none",
    ) -> None:
        super().__init__(width, heads, key_dim, value_dim, qk_norm, gate, logit_scale)
        self.to_forget = nn.Linear(width, heads)

    def log_forget(self, x: Tensor) -> Tensor:
        return F.logsigmoid(at_least_float32(self.to_forget(x))).mT  # [B, H, T]
