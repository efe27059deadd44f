"""Kimi delta attention (KDA): the gated delta rule with a decay per key channel.

    S_t = (I - beta_t k_t k_t^T) diag(alpha_t) S_{t-1} + beta_t k_t v_t^T      keep alpha per key channel,
                                                                              erase beta, write beta
    log alpha_t = -exp(a) softplus(W_2 W_1 x_t + b),   beta_t = max_beta * sigmoid(w . x_t)

a is one number per head, initially log U(1, 16); b is such that softplus(b) is log-uniform in [0.001, 0.1].  The rank
of W_1 is the number of channels of a value.  With the same decay in all channels this is gated_delta; without decay it
is delta.

    update_rule: {name: kda, max_beta: 2}

Kimi Team 2025, arXiv:2510.26692.
"""

from torch import Tensor, nn

from hqlt_lab.components.update_rules._base import LinearRule
from hqlt_lab.components.update_rules._learned_decay import ChannelDecay
from hqlt_lab.components.update_rules._options import MaxBeta, check_max_beta
from hqlt_lab.ops.gates import Gates
from hqlt_lab.registry import register


@register("update_rule", "kda")
class Kda(LinearRule):
    has_key_channels = True
    needs_unit_keys = True

    def __init__(self, width: int, heads: int, key_dim: int, value_dim: int, max_beta: MaxBeta = 1.0) -> None:
        super().__init__()
        self.decay = ChannelDecay(width, heads, key_dim, rank=value_dim)
        self.to_beta = nn.Linear(width, heads, bias=False)
        self.max_beta = check_max_beta(max_beta)

    def gates(self, x: Tensor) -> Gates:
        beta = self.max_beta * self.to_beta(x).sigmoid().mT  # [B, H, T]
        return Gates(log_keep=self.decay(x), erase=beta, write=beta)
