"""Gated delta rule: decay the whole memory by a learned gate, then replace the value stored under the key.

    S_t = alpha_t S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T      keep alpha, erase beta, write beta
    alpha_t = exp(-exp(a) softplus(w_a . x_t + b)),   beta_t = max_beta * sigmoid(w_b . x_t)

alpha near 0 clears the whole memory in one step; beta near 1 replaces a single association.  a is initialized as the
logarithm of U(0, 16), and b such that softplus(b) is log-uniform in [0.001, 0.1].

    update_rule: {name: gated_delta, max_beta: 2}

Yang, Kautz, Hatamizadeh 2024, arXiv:2412.06464.
"""

import torch
from torch import Tensor, nn

from hqlt_lab.components.update_rules._base import LinearRule
from hqlt_lab.components.update_rules._learned_decay import draw_decay_bias, draw_decay_rate, softplus
from hqlt_lab.components.update_rules._options import MaxBeta, check_max_beta
from hqlt_lab.ops.gates import Gates
from hqlt_lab.registry import register


@register("update_rule", "gated_delta")
class GatedDelta(LinearRule):
    needs_unit_keys = True

    def __init__(self, width: int, heads: int, max_beta: MaxBeta = 1.0) -> None:
        super().__init__()
        self.to_beta = nn.Linear(width, heads, bias=False)
        self.to_fade = nn.Linear(width, heads, bias=False)
        self.log_rate = nn.Parameter(torch.empty(heads))
        self.fade_bias = nn.Parameter(torch.empty(heads))
        # no weight decay, as in the paper: it would pull both toward 0 and so set how long the memory lasts
        self.log_rate.no_decay = self.fade_bias.no_decay = True  # type: ignore[attr-defined]
        self.max_beta = check_max_beta(max_beta)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if not self.log_rate.is_meta:  # there are no values to draw, and meta arithmetic loads torch.compile
            draw_decay_rate(self.log_rate, 0.0)
            draw_decay_bias(self.fade_bias)

    def gates(self, x: Tensor) -> Gates:
        beta = self.max_beta * self.to_beta(x).sigmoid().mT  # [B, H, T]
        decay = softplus(self.to_fade(x) + self.fade_bias) * self.log_rate.exp()
        return Gates(log_keep=-decay.mT, erase=beta, write=beta)
