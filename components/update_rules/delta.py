"""Delta rule: replace a fraction beta of the value stored under the key.

    S_t = S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T      keep 1, erase beta, write beta
    beta_t = max_beta * sigmoid(w . x_t)

S_{t-1} k_t is the value stored under k_t.  A step changes it toward v_t: it is one gradient step of size beta_t on
|S k_t - v_t|^2 / 2.  With |k_t| = 1, beta_t = 1 replaces the old value by v_t, and beta_t = 0 changes nothing.  Parity
requires the eigenvalue -1, which max_beta = 2 allows (Grazzi et al. 2024, arXiv:2411.12537).

    update_rule: {name: delta, max_beta: 2}

Schlag, Irie, Schmidhuber 2021, arXiv:2102.11174.  Parallel form: Yang et al. 2024, arXiv:2406.06484.
"""

from torch import Tensor, nn

from hqlt_lab.components.update_rules._base import LinearRule
from hqlt_lab.components.update_rules._options import MaxBeta, check_max_beta
from hqlt_lab.ops.gates import Gates
from hqlt_lab.registry import register


@register("update_rule", "delta")
class Delta(LinearRule):
    needs_unit_keys = True

    def __init__(self, width: int, heads: int, max_beta: MaxBeta = 1.0) -> None:
        super().__init__()
        self.to_beta = nn.Linear(width, heads, bias=False)
        self.max_beta = check_max_beta(max_beta)

    def gates(self, x: Tensor) -> Gates:
        beta = self.max_beta * self.to_beta(x).sigmoid().mT  # [B, H, T]
        return Gates(erase=beta, write=beta)
