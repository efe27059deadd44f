"""Erase-then-delta attention: remove what is stored under an erase key of its own, then apply the step of KDA.

    S_t = (I - beta_t k_t k_t^T) (I - gamma_t e_t e_t^T) diag(alpha_t) S_{t-1} + beta_t k_t v_t^T
    e_t = normalize(W_e x_t), of rank 16 per head,   gamma_t = sigmoid(w_g . x_t - 2)

A token makes two writes: the first erases under e with strength gamma and writes nothing, the second is the delta-rule
write under k.  The decay alpha per key channel and beta are those of kda; with gamma = 0 this is kda.

The recurrence and the rank follow two independent descriptions of the paper.  Its code is not public; the sigmoid of
gamma and its initial bias of -2 are assumptions.

    update_rule: {name: erase_then_delta, max_beta: 2}

arXiv:2606.26560.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from hqlt_lab.components.update_rules._base import LinearInputs, LinearRule
from hqlt_lab.components.update_rules._learned_decay import ChannelDecay
from hqlt_lab.components.update_rules._options import MaxBeta, check_max_beta
from hqlt_lab.ops.gates import Gates
from hqlt_lab.registry import register

RANK = 16
INITIAL_BIAS = -2.0
EPS = 1e-6


class EraseThenDeltaGates(NamedTuple):
    """Gates of one token."""

    log_keep: Tensor  # [B, H, T, K]
    erase_key: Tensor  # e [B, H, T, K]
    erase: Tensor  # gamma [B, H, T]
    write: Tensor  # beta [B, H, T]


@register("update_rule", "erase_then_delta")
class EraseThenDelta(LinearRule):
    has_key_channels = True
    needs_unit_keys = True

    def __init__(self, width: int, heads: int, key_dim: int, value_dim: int, max_beta: MaxBeta = 1.0) -> None:
        super().__init__()
        self.heads, self.max_beta = heads, check_max_beta(max_beta)
        self.decay = ChannelDecay(width, heads, key_dim, rank=value_dim)
        self.to_beta, self.to_erase = (nn.Linear(width, heads, bias=False) for _ in range(2))
        self.erase_bias = nn.Parameter(torch.empty(heads))
        self.to_hidden = nn.Linear(width, heads * RANK, bias=False)
        self.erase_key_weight = nn.Parameter(torch.empty(heads, RANK, key_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.erase_bias.fill_(INITIAL_BIAS)
            if not self.erase_key_weight.is_meta:
                self.erase_key_weight.normal_(std=RANK**-0.5)

    def gates(self, x: Tensor) -> EraseThenDeltaGates:
        hidden = self.to_hidden(x).unflatten(-1, (self.heads, RANK)).transpose(1, 2)  # [B, H, T, RANK]
        erase_key = hidden @ self.erase_key_weight.to(hidden.dtype)
        erase_key = erase_key * (erase_key.square().sum(-1, keepdim=True) + EPS).rsqrt()
        erase = (self.to_erase(x) + self.erase_bias).sigmoid().mT
        beta = self.max_beta * self.to_beta(x).sigmoid().mT
        return EraseThenDeltaGates(self.decay(x), erase_key, erase, beta)

    def scan_inputs(self, q: Tensor, k: Tensor, v: Tensor, gates: EraseThenDeltaGates) -> LinearInputs:
        keys = torch.stack([gates.erase_key.to(k.dtype), k], 3).flatten(2, 3)  # [B, H, 2 T, K]
        log_keep = torch.stack([gates.log_keep, torch.zeros_like(gates.log_keep)], 3).flatten(2, 3)
        strength = torch.stack([gates.erase, gates.write], 3).flatten(2, 3)  # [B, H, 2 T]
        return LinearInputs(q, keys, v, Gates(log_keep=log_keep, erase=strength, write=strength))
