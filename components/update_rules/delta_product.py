"""Delta product: several delta-rule writes per token, each with its own key, value and strength.

    S_{t,i} = S_{t,i-1} (I - beta_{t,i} k_{t,i} k_{t,i}^T) + beta_{t,i} v_{t,i} k_{t,i}^T      i = 1 .. steps
    S_{t,0} = S_{t-1,steps}                                             keep 1, erase beta_i, write beta_i

A product of `steps` reflections can be any rotation in that many dimensions, so that permutations of three and more
items can be tracked (with max_beta 2).  A token reads the memory after its last write.  Softmax uses the first of the
token's key-value pairs.  With one step this is the delta rule.

With `decay: true` the memory decays before the first write of a token, as in gated_delta: keep alpha_t there, and 1 in
the other writes.

    update_rule: {name: delta_product, steps: 2, max_beta: 2, decay: true}

Siems et al. 2025, arXiv:2502.10297.
"""

from typing import Annotated

import torch.nn.functional as F
from torch import Tensor, nn

from hqlt_lab.components.update_rules._base import LinearRule
from hqlt_lab.components.update_rules._learned_decay import HeadDecay
from hqlt_lab.components.update_rules._options import MaxBeta, check_max_beta
from hqlt_lab.errors import ConfigError
from hqlt_lab.ops.gates import Gates
from hqlt_lab.registry import register


@register("update_rule", "delta_product")
class DeltaProduct(LinearRule):
    needs_unit_keys = True

    def __init__(
        self,
        width: int,
        heads: int,
        steps: Annotated[int, "Writes per token."] = 2,
        max_beta: MaxBeta = 1.0,
        decay: Annotated[bool, "Whether the memory decays before the first write of a token."] = False,
    ) -> None:
        super().__init__()
        if steps < 1:
            raise ConfigError.at("steps", "below_minimum", f"at least 1 is needed, got {steps}.")
        self.writes = steps
        self.to_beta = nn.Linear(width, heads * steps, bias=False)
        self.max_beta = check_max_beta(max_beta)
        self.decay = HeadDecay(width, heads) if decay else None

    def gates(self, x: Tensor) -> Gates:
        beta = self.max_beta * self.to_beta(x).sigmoid()
        beta = beta.unflatten(-1, (-1, self.writes)).transpose(1, 2).flatten(2)  # [B, H, T * writes]
        if self.decay is None:
            return Gates(erase=beta, write=beta)
        log_keep = F.pad(self.decay(x)[..., None], (0, self.writes - 1)).flatten(2)  # 0 in all but the first write
        return Gates(log_keep=log_keep, erase=beta, write=beta)
