"""RWKV-7: a bounded decay per key channel, and a removal key of its own.

    S_t = (diag(w_t) - (a_t * r_t) r_t^T) S_{t-1} + k'_t v_t^T
    r_t = normalize(xi * k_t)                       the key that is looked up, before the decay
    k'_t = k_t * (1 + (a_t - 1) * c)                the key that is written
    log w_t = -e^{-1/2} sigmoid(W_2 tanh(W_1 x_t) + b_w),   a_t = sigmoid(A_2 A_1 x_t + b_a)        per key channel

A token makes two writes: the first removes what is found under r, with the key a * r; the second adds k' v^T.  w is at
least 0.545.  Keys are used as projected, and reads are not scaled.

b_w, b_a, xi and c start as in the authors' code for a layer at `depth` (0: first layer, 1: last).  The first matrix of
each low-rank pair starts like other linear maps, not at 0.  Token shift, the value residual between layers and the
direct path from v to the output are not part of the memory and are left out.

    update_rule: {name: rwkv7, depth: 0.5}

Peng et al. 2025, arXiv:2503.14456.
"""

import math
from typing import Annotated, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hqlt_lab.components.update_rules._base import LinearInputs, LinearRule
from hqlt_lab.components.update_rules._learned_decay import split_channels
from hqlt_lab.ops.gates import Gates
from hqlt_lab.registry import register

MAX_DECAY = math.exp(-0.5)


class Rwkv7Gates(NamedTuple):
    """Gates of one token, per key channel [B, H, T, K]."""

    log_keep: Tensor  # log w
    removal: Tensor  # a


@register("update_rule", "rwkv7")
class Rwkv7(LinearRule):
    has_key_channels = True
    feature_map = "identity"
    scales_queries = False

    def __init__(
        self,
        width: int,
        heads: int,
        key_dim: int,
        depth: Annotated[
            float, "Depth of the layer, which sets its initial decay: 0 for the first, 1 for the last."
        ] = 0.5,
    ) -> None:
        super().__init__()
        self.heads, self.depth = heads, depth
        channels, rank = heads * key_dim, max(32, 32 * round(2.5 * math.sqrt(width) * key_dim / 64 / 32))
        self.to_decay_hidden, self.to_removal_hidden = (nn.Linear(width, rank, bias=False) for _ in range(2))
        self.to_decay, self.to_removal = (nn.Linear(rank, channels, bias=False) for _ in range(2))
        self.decay_bias, self.removal_bias = (nn.Parameter(torch.empty(channels)) for _ in range(2))
        self.lookup_scale, self.write_mix = (nn.Parameter(torch.empty(heads, key_dim)) for _ in range(2))
        for parameter in (self.decay_bias, self.removal_bias, self.lookup_scale, self.write_mix):
            parameter.no_decay = True  # type: ignore[attr-defined]
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.decay_bias.is_meta:
            return
        channels, key_dim = len(self.decay_bias), self.lookup_scale.shape[1]
        channel = torch.arange(channels, dtype=torch.float64)
        position = channel / max(channels - 1, 1)
        in_head = (channel % key_dim - (key_dim - 1) / 2) / max((key_dim - 1) / 2, 0.5)
        zigzag = in_head * in_head.abs()
        with torch.no_grad():
            for linear in (self.to_decay, self.to_removal):
                nn.init.orthogonal_(linear.weight, gain=0.1)
            self.decay_bias.copy_(-6 + 6 * position ** (1 + self.depth**0.3) + 0.5 + 2.5 * zigzag)
            self.removal_bias.copy_(-0.19 + 0.3 * zigzag + 0.4 * (position - 0.5))
            self.lookup_scale.copy_((0.71 - 0.1 * (position - 0.5)).view_as(self.lookup_scale))
            self.write_mix.fill_(1.02)

    def gates(self, x: Tensor) -> Rwkv7Gates:
        decay = self.to_decay(self.to_decay_hidden(x).tanh()) + self.decay_bias
        removal = self.to_removal(self.to_removal_hidden(x)) + self.removal_bias
        return Rwkv7Gates(
            split_channels(-MAX_DECAY * decay.sigmoid(), self.heads), split_channels(removal.sigmoid(), self.heads)
        )

    def scan_inputs(self, q: Tensor, k: Tensor, v: Tensor, gates: Rwkv7Gates) -> LinearInputs:
        removal, scale, mix = (x.to(k.dtype) for x in (gates.removal, self.lookup_scale, self.write_mix))
        lookup = F.normalize(k * scale[:, None], dim=-1)
        written_key = k * (1 + (removal - 1) * mix[:, None])
        keys = torch.stack([removal * lookup, written_key], 3).flatten(2, 3)  # [B, H, 2 T, K]
        log_keep = torch.stack([gates.log_keep, torch.zeros_like(gates.log_keep)], 3).flatten(2, 3)
        return LinearInputs(q, keys, v, Gates(log_keep=log_keep, early_lookup=lookup))
