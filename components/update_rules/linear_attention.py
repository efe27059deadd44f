"""Linear attention: add every key-value pair to the memory, without decay.

    S_t = S_{t-1} + v_t k_t^T                                    keep 1, erase 0, write 1
    read: S_t q_t / (z_t . q_t),   z_t = z_{t-1} + k_t           normalizer: time

The normalizer is an extra value channel that is 1 for every valid write, so one scan computes numerator and
denominator, and a read of an empty memory is 0.  It requires features of at least 0, or the denominator may vanish.

    normalizer: time    divide by the sum of q . k over all written keys (Katharopoulos et al. 2020, arXiv:2006.16236)
    normalizer: none    the plain sum, as in newer linear transformers
    normalizer: heads   divide by q . k of the current token, summed over this and the lower heads

`heads` reproduces a bug of the published HQLT code, in which the sum runs over the wrong axis.  It is available to
reproduce the published numbers.

    update_rule: {name: linear_attention, normalizer: none}
"""

from typing import Annotated, Any, Literal

import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.components.update_rules._base import LinearRule
from hqlt_lab.ops.flops import Flops
from hqlt_lab.ops.gates import Gates, ScanContext
from hqlt_lab.ops.scan.deterministic_cumsum import deterministic_cumsum
from hqlt_lab.registry import register

EPS = 1e-10


@register("update_rule", "linear_attention")
class LinearAttention(LinearRule):
    feature_map = "elu_plus_one"

    def __init__(
        self,
        normalizer: Annotated[
            Literal["time", "none", "heads"],
            "What a read is divided by: a sum over all keys so far, nothing, or a sum over heads (HQLT code).",
        ] = "time",
    ) -> None:
        super().__init__()
        self.normalizer = normalizer
        self.needs_nonnegative_features = normalizer != "none"

    def gates(self, x: Tensor) -> Gates:
        return Gates()

    def scan(
        self, q: Tensor, k: Tensor, v: Tensor, gates: Any, state: Tensor | None, context: ScanContext
    ) -> tuple[Tensor, Tensor]:
        read, state = super().scan(q, k, self.append_count_channel(v), gates, state, context)
        return self.normalize_read(read, q, k), state

    def reference(
        self, q: Tensor, k: Tensor, v: Tensor, gates: Any, state: Tensor | None, context: ScanContext
    ) -> tuple[Tensor, Tensor]:
        read, state = super().reference(q, k, self.append_count_channel(v), gates, state, context)
        return self.normalize_read(read, q, k), state

    def count_flops(
        self, q: Tensor, k: Tensor, v: Tensor, gates: Any, state: Tensor | None, context: ScanContext
    ) -> Flops:
        if q.shape[2] > 1:
            v = self.append_count_channel(v.to("meta"))  # only its shape is used
        return super().count_flops(q, k, v, gates, state, context)

    def value_channels(self, values: int) -> int:
        return values + (self.normalizer == "time")

    def append_count_channel(self, v: Tensor) -> Tensor:
        """Append a channel that is 1 for every write, if the normalizer counts them."""
        return F.pad(v, (0, 1), value=1.0) if self.normalizer == "time" else v

    def normalize_read(self, read: Tensor, q: Tensor, k: Tensor) -> Tensor:
        if self.normalizer == "time":
            count = read[..., -1:]
            # an empty memory reads 0 and is not divided: the gradient, 1 / EPS, would overflow in 16 bits
            is_empty = count == 0
            return (read[..., :-1] / (count + EPS).masked_fill(is_empty, 1)).masked_fill(is_empty, 0)
        if self.normalizer == "heads":
            return read / ((q * deterministic_cumsum(k, 1)).sum(-1, keepdim=True) + EPS)
        return read
