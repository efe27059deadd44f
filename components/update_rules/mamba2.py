"""Mamba-2: the step size of a token sets how much the memory decays and how strongly the token is written.

    S_t = alpha_t S_{t-1} + dt_t v_t k_t^T                 keep alpha, erase 0, write dt
    alpha_t = exp(-exp(a) dt_t),   dt_t = softplus(w . x_t + b)

In the terms of the paper k is B, q is C and v is x.  exp(a) is initialized as U(1, 16), and b such that softplus(b) is
log-uniform in [0.001, 0.1].  Keys and queries have a SiLU and no normalization, and reads are not scaled.  The paper's
direct path from v to the output (D) is not part of the memory and is left out: in a hybrid, softmax attention sees the
current token.

    update_rule: mamba2

Dao, Gu 2024, arXiv:2405.21060.
"""

from torch import Tensor

from hqlt_lab.components.update_rules._base import LinearRule
from hqlt_lab.components.update_rules._learned_decay import HeadDecay
from hqlt_lab.ops.gates import Gates
from hqlt_lab.registry import register


@register("update_rule", "mamba2")
class Mamba2(LinearRule):
    feature_map = "silu"
    scales_queries = False

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.decay = HeadDecay(width, heads, lowest_rate=1.0)

    def gates(self, x: Tensor) -> Gates:
        step_size = self.decay.step_size(x)  # [B, H, T]
        return Gates(log_keep=-step_size * self.decay.log_rate.exp()[:, None], write=step_size)
