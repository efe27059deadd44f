"""Linear attention: add every pair, forget nothing.

    S_t = S_{t-1} + v_t k_t^T                                    keep 1, erase 0, write 1
    read: S_t q_t / (z_t . q_t),   z_t = z_{t-1} + k_t           normaliser: time

The normaliser is one more value channel that is 1 for every real write: numerator and denominator in one scan, and
an empty memory reads 0 / eps = 0.  It needs features that are never negative, or the denominator may vanish.

    normaliser: time    divide by what all written keys say of q (Katharopoulos et al. 2020, arXiv:2006.16236)
    normaliser: none    the plain sum, as newer linear transformers have it
    normaliser: heads   divide by the current token's keys, summed over this and the lower heads

The last is a mistake: in the published HQLT code the sum ran over the wrong axis.  It is kept so that the published
numbers can be reproduced.

    update_rule: {name: linear_attention, normaliser: none}
"""

from typing import Annotated, Any, Literal

import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.components.update_rules._base import LinearRule
from hqlt_lab.ops.flops import Flops
from hqlt_lab.ops.running_sum import running_sum
from hqlt_lab.ops.steps import Course, Gates
from hqlt_lab.registry import register

EPS = 1e-10


@register("update_rule", "linear_attention")
class LinearAttention(LinearRule):
    feature_map = "elu_plus_one"

    def __init__(
        self,
        normaliser: Annotated[
            Literal["time", "none", "heads"],
            "What an answer is divided by: all keys so far, nothing, or by mistake the token's own keys over heads.",
        ] = "time",
    ) -> None:
        super().__init__()
        self.normaliser = normaliser
        self.needs_positive_features = normaliser != "none"

    def gates(self, x: Tensor) -> Gates:
        return Gates()

    def scan(
        self, q: Tensor, k: Tensor, v: Tensor, gates: Any, state: Tensor | None, course: Course
    ) -> tuple[Tensor, Tensor]:
        read, state = super().scan(q, k, self.with_count(v), gates, state, course)
        return self.normalised(read, q, k), state

    def reference(
        self, q: Tensor, k: Tensor, v: Tensor, gates: Any, state: Tensor | None, course: Course
    ) -> tuple[Tensor, Tensor]:
        read, state = super().reference(q, k, self.with_count(v), gates, state, course)
        return self.normalised(read, q, k), state

    def flops(self, q: Tensor, k: Tensor, v: Tensor, gates: Any, state: Tensor | None, course: Course) -> Flops:
        if q.shape[2] > 1:
            v = self.with_count(v.to("meta"))  # of which only the shape is read
        return super().flops(q, k, v, gates, state, course)

    def value_channels(self, values: int) -> int:
        return values + (self.normaliser == "time")

    def with_count(self, v: Tensor) -> Tensor:
        """One more channel, 1 for every write."""
        return F.pad(v, (0, 1), value=1.0) if self.normaliser == "time" else v

    def normalised(self, read: Tensor, q: Tensor, k: Tensor) -> Tensor:
        if self.normaliser == "time":
            count = read[..., -1:]
            # an empty memory reads 0 and is not to be divided: the gradient, 1 / EPS, would be none in 16 bits
            empty = count == 0
            return (read[..., :-1] / (count + EPS).masked_fill(empty, 1)).masked_fill(empty, 0)
        if self.normaliser == "heads":
            return read / ((q * running_sum(k, 1)).sum(-1, keepdim=True) + EPS)
        return read
