"""Gated delta rule 2 (GDN-2): decay and erasure per key channel, writing per value channel.

    S_t = (I - k_t (b_t * k_t)^T) diag(alpha_t) S_{t-1} + k_t (w_t * v_t)^T    keep alpha and erase b per key channel,
                                                                              write w per value channel
    log alpha_t = -exp(a) softplus(W_2 W_1 x_t + c),   b_t = max_beta * sigmoid(W_b x_t),   w_t = sigmoid(W_w x_t)

The lookup under b * k and the write of w * v have separate strengths: a channel can be erased without being written.
The decay is that of kda.  If b and w are the same number in all channels, this is kda.

    update_rule: {name: gdn2, max_beta: 2}

arXiv:2605.22791.
"""

from torch import Tensor, nn

from hqlt_lab.components.update_rules._base import LinearRule
from hqlt_lab.components.update_rules._learned_decay import ChannelDecay, split_channels
from hqlt_lab.components.update_rules._options import MaxBeta, check_max_beta
from hqlt_lab.ops.gates import Gates
from hqlt_lab.registry import register


@register("update_rule", "gdn2")
class Gdn2(LinearRule):
    has_key_channels = True
    needs_unit_keys = True

    def __init__(self, width: int, heads: int, key_dim: int, value_dim: int, max_beta: MaxBeta = 1.0) -> None:
        super().__init__()
        self.heads = heads
        self.decay = ChannelDecay(width, heads, key_dim, rank=value_dim)
        self.to_erase = nn.Linear(width, heads * key_dim, bias=False)
        self.to_write = nn.Linear(width, heads * value_dim, bias=False)
        self.max_beta = check_max_beta(max_beta)

    def gates(self, x: Tensor) -> Gates:
        erase, write = (split_channels(linear(x).sigmoid(), self.heads) for linear in (self.to_erase, self.to_write))
        return Gates(log_keep=self.decay(x), erase=self.max_beta * erase, write=write)  # [B, H, T, K|V]
