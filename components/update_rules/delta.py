"""Delta rule: replace what the key already recalls, as far as beta says.

    S_t = S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T      keep 1, erase beta, write beta
    beta_t = max_beta * sigmoid(w . x_t)

The memory first looks up what k_t recalls, S_{t-1} k_t, and moves it towards v_t by beta_t: one gradient step on
|S k_t - v_t|^2 / 2.  With |k_t| = 1 and beta_t = 1 the old value is gone; with beta_t = 0 nothing happens.
max_beta = 2 allows the eigenvalue -1, which parity needs (Grazzi et al. 2024, arXiv:2411.12537).

    update_rule: {name: delta, max_beta: 2}

Schlag, Irie, Schmidhuber 2021, arXiv:2102.11174.  Parallel form: Yang et al. 2024, arXiv:2406.06484.
"""

from torch import Tensor, nn

from hqlt_lab.components.update_rules._base import LinearRule
from hqlt_lab.components.update_rules._beta import MaxBeta, check_max_beta
from hqlt_lab.ops.steps import Gates
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
