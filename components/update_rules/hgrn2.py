"""HGRN2: a decay f per key channel, and 1 - f as the key.

    S_t = diag(f_t) S_{t-1} + (1 - f_t) v_t^T              keep f per key channel, erase 0, write 1
    f_t = l + (1 - l) sigmoid(W x_t)                       l: `lower_bound`

The rule replaces the projected key by 1 - f_t.  A delayed timing writes a pair with the gates of the current token, so
its key is then computed from these gates; with `gates: own` it is computed from the gates of the pair's own token.

The authors learn the lower bound of every layer, from 0 in the first to nearly 1 in the last.  Here it is a constant,
which may be a list over the layers.

    update_rule: {name: hgrn2, lower_bound: 0.5}

Qin et al. 2024, arXiv:2404.07904.
"""

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hqlt_lab.components.update_rules._base import LinearInputs, LinearRule
from hqlt_lab.components.update_rules._learned_decay import split_channels
from hqlt_lab.errors import ConfigError
from hqlt_lab.ops.gates import Gates
from hqlt_lab.registry import register


@register("update_rule", "hgrn2")
class Hgrn2(LinearRule):
    has_key_channels = True
    feature_map = "silu"

    def __init__(
        self,
        width: int,
        heads: int,
        key_dim: int,
        lower_bound: Annotated[float, "Smallest keep of a channel, in [0, 1)."] = 0.0,
    ) -> None:
        super().__init__()
        if not 0 <= lower_bound < 1:
            raise ConfigError.at("lower_bound", "out_of_range", f"a number in [0, 1) is needed, got {lower_bound}.")
        self.heads, self.lower_bound = heads, lower_bound
        self.to_keep = nn.Linear(width, heads * key_dim, bias=False)

    def gates(self, x: Tensor) -> Gates:
        keep = split_channels(self.to_keep(x), self.heads)  # [B, H, T, K]
        if not self.lower_bound:
            return Gates(log_keep=F.logsigmoid(keep))
        lower_bound = torch.as_tensor(self.lower_bound, dtype=keep.dtype, device=keep.device)
        return Gates(log_keep=torch.logaddexp(lower_bound.log(), torch.log1p(-lower_bound) + F.logsigmoid(keep)))

    def scan_inputs(self, q: Tensor, k: Tensor, v: Tensor, gates: Gates) -> LinearInputs:
        assert gates.log_keep is not None
        return LinearInputs(q, one_minus_exp(gates.log_keep.to(k.dtype)), v, gates)


def one_minus_exp(log_keep: Tensor) -> Tensor:
    """Return 1 - e^log_keep with an accurate value and gradient.

    The value of 1 - exp loses digits where log_keep is near 0.  The gradient of expm1 loses them where it is small:
    torch computes e^x there as expm1(x) + 1.
    """
    return torch.where(log_keep > -1.0, -torch.expm1(log_keep), 1 - log_keep.exp())
