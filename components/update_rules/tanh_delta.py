"""Tanh delta rule: the delta rule, followed by a tanh on every entry of the memory.

    S_t = tanh(S_{t-1} + beta_t (v_t - S_{t-1} k_t) k_t^T),   beta_t = sigmoid(w . x_t)

It is not linear in S, so it has no keep, erase and write gates and no parallel form.  It implements `step` and is
scanned step by step.  All entries of the memory stay in (-1, 1), so it cannot diverge, whatever the keys are.  It is
the example of a nonlinear rule.

    update_rule: tanh_delta
"""

from typing import NamedTuple

from torch import Tensor, nn

from hqlt_lab.components.update_rules._base import StepRule
from hqlt_lab.registry import register


class Strength(NamedTuple):
    """Write strength beta of each step, [B, H, T]."""

    beta: Tensor


@register("update_rule", "tanh_delta")
class TanhDelta(StepRule):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.to_beta = nn.Linear(width, heads, bias=False)

    def gates(self, x: Tensor) -> Strength:
        return Strength(self.to_beta(x).sigmoid().mT)

    def step(self, state: Tensor, k: Tensor, v: Tensor, gates: Strength) -> Tensor:
        error = v - self.read(state, k)  # [B, H, V]
        return (state + gates.beta[..., None, None] * k[..., :, None] * error[..., None, :]).tanh()
