"""Bounded delta rule: the delta rule in a memory whose every entry saturates.

    S_t = tanh(S_{t-1} + beta_t (v_t - S_{t-1} k_t) k_t^T)

Not linear in S, so there are no three numbers and no parallel form: the rule gives `step` and is scanned one step at a
time.  It is the example of such a rule, and a memory that cannot grow whatever the keys are.

    update_rule: bounded_delta
"""

from typing import NamedTuple

from torch import Tensor, nn

from hqlt_lab.components.update_rules._base import StepRule
from hqlt_lab.registry import register


class Strength(NamedTuple):
    """How far a step moves the memory towards its value: [B, H, T]."""

    beta: Tensor


@register("update_rule", "bounded_delta")
class BoundedDelta(StepRule):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.to_beta = nn.Linear(width, heads, bias=False)

    def gates(self, x: Tensor) -> Strength:
        return Strength(self.to_beta(x).sigmoid().mT)

    def step(self, state: Tensor, k: Tensor, v: Tensor, gates: Strength) -> Tensor:
        error = v - self.read(state, k)  # [B, H, V]
        return (state + gates.beta[..., None, None] * k[..., :, None] * error[..., None, :]).tanh()
