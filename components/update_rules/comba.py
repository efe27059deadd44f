"""Comba: the gated delta rule with a weaker lookup before the decay, and queries corrected by the key.

    S_t = alpha_t S_{t-1} + beta_t k_t (v_t - s S_{t-1}^T k_t)^T      keep alpha, write beta,
                                                                      early lookup key beta s k, s = sigmoid(d_h)
    read: S_t^T q'_t,   q'_t = normalize(q_t - D_h s k_t)
    log alpha_t = -exp(a) softplus(w_a . x_t + b),   beta_t = sigmoid(w_b . x_t)

d starts at 1 and D at `query_correction`; the authors advise 0.02 for small models and 1 otherwise.  In the kernels of
flash-linear-attention 0.6 the lookup key is normalized, which removes s from the lookup; this file follows the paper.

    update_rule: {name: comba, query_correction: 0.02}

Hu et al. 2025, arXiv:2506.02475.
"""

from typing import Annotated

import torch
from torch import Tensor, nn

from hqlt_lab.components.update_rules._base import LinearInputs, LinearRule
from hqlt_lab.components.update_rules._learned_decay import HeadDecay
from hqlt_lab.ops.gates import Gates
from hqlt_lab.registry import register

EPS = 1e-6


@register("update_rule", "comba")
class Comba(LinearRule):
    needs_unit_keys = True

    def __init__(
        self, width: int, heads: int, query_correction: Annotated[float, "Initial weight of the correction, D."] = 1.0
    ) -> None:
        super().__init__()
        self.decay = HeadDecay(width, heads)
        self.to_beta = nn.Linear(width, heads, bias=False)
        self.query_correction = query_correction
        self.lookup_strength, self.query_weight = (nn.Parameter(torch.empty(heads)) for _ in range(2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.lookup_strength.fill_(1.0)
            self.query_weight.fill_(self.query_correction)

    def gates(self, x: Tensor) -> Gates:
        beta = self.to_beta(x).sigmoid().mT  # [B, H, T]
        return Gates(log_keep=self.decay(x), erase=beta, write=beta)

    def scan_inputs(self, q: Tensor, k: Tensor, v: Tensor, gates: Gates) -> LinearInputs:
        strength, weight = (x.to(k.dtype)[:, None, None] for x in (self.lookup_strength.sigmoid(), self.query_weight))
        lookup, scale = strength * k, q.shape[-1] ** -0.5  # queries arrive scaled
        q = q / scale - weight * lookup
        q = q * (q.square().sum(-1, keepdim=True) + EPS).rsqrt() * scale
        return LinearInputs(q, k, v, gates._replace(early_lookup=lookup))
