"""The options that softmax and forgetting share: normalized queries and keys, a gate, and a scale of the scores."""

from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from hqlt_lab.components._heads import HeadNorm, split_heads
from hqlt_lab.components.attention._base import Attention, AttentionInputs

QkNorm = Annotated[bool, "RMSNorm per head on queries and keys, with a learned scale per channel."]
Gate = Annotated[
    Literal["none", "head", "channel"], "Sigmoid gate on the output: none, one per head, or one per channel."
]
LogitScale = Annotated[
    Literal["none", "log_length"], "Factor of the scores: none, or the logarithm of the number of visible tokens."
]
EPS = 1e-6


class SoftmaxWithOptions(Attention):
    """Softmax with these options, all off by default."""

    def __init__(
        self,
        width: int,
        heads: int,
        key_dim: int,
        value_dim: int,
        qk_norm: QkNorm = False,
        gate: Gate = "none",
        logit_scale: LogitScale = "none",
    ) -> None:
        super().__init__()
        self.heads, self.logit_scale = heads, logit_scale
        self.norms = nn.ModuleList(HeadNorm(key_dim, eps=EPS) for _ in range(2)) if qk_norm else None
        gates = {"none": 0, "head": heads, "channel": heads * value_dim}[gate]
        self.to_gate = nn.Linear(width, gates, bias=False) if gates else None

    def transform(self, x: Tensor, inputs: AttentionInputs) -> AttentionInputs:
        q, k = inputs.q, inputs.k
        if self.norms is not None:
            q, k = (norm(u) for norm, u in zip(self.norms, (q, k), strict=True))
        if self.logit_scale == "log_length":
            scale = inputs.num_visible.to(torch.promote_types(q.dtype, torch.float32)).log()
            q = q * scale[:, None, :, None].to(q.dtype)
        return inputs._replace(q=q, k=k)

    def finish(self, x: Tensor, output: Tensor) -> Tensor:
        if self.to_gate is None:
            return output
        return output * split_heads(self.to_gate(x).sigmoid(), self.heads)  # [B, H, T, 1 or V]
