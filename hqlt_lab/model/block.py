"""One block: a memory and an MLP, each added to the residual stream after a normalisation of its input.

x += drop(memory(norm(x)));   x += drop(mlp(norm(x)))
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hqlt_lab.model.config import ModelConfig, inner_width
from hqlt_lab.model.layout import Places
from hqlt_lab.model.memory import HybridMemory, ToResidual
from hqlt_lab.model.state import MemoryState
from hqlt_lab.ops.swiglu import swiglu


class SwiGlu(nn.Module):
    """down(silu(gate x) * up x)."""

    def __init__(self, width: int, inner: int, bias: bool) -> None:
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=bias)
        self.up = nn.Linear(width, inner, bias=bias)
        self.down = ToResidual(inner, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate.bias is None:
            return swiglu(x, self.gate.weight, self.up.weight, self.down.weight)
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Gelu(nn.Module):
    """down(gelu(up x))."""

    def __init__(self, width: int, inner: int, bias: bool) -> None:
        super().__init__()
        self.up = nn.Linear(width, inner, bias=bias)
        self.down = ToResidual(inner, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


def norm(config: ModelConfig) -> nn.Module:
    """The normalisation before a sub-layer and before the head."""
    kind = nn.RMSNorm if config.norm == "rms" else nn.LayerNorm
    return kind(config.width, eps=config.norm_eps)


class Block(nn.Module):
    """forward(x [B, T, width], state, places) -> x, state."""

    def __init__(self, config: ModelConfig, layer: int = 0) -> None:
        super().__init__()
        self.memory_norm = norm(config)
        self.memory = HybridMemory(config, layer)
        self.mlp_norm = norm(config)
        mlp = SwiGlu if config.mlp == "swiglu" else Gelu
        self.mlp = mlp(config.width, inner_width(config.width, config.mlp, config.mlp_width), config.bias)
        self.drop = nn.Dropout(config.dropout)
        self.recomputed = False  # whether what backwards needs is computed again there instead of kept

    def forward(
        self, x: Tensor, state: MemoryState | None = None, places: Places | None = None
    ) -> tuple[Tensor, MemoryState]:
        if self.recomputed and torch.is_grad_enabled():
            return checkpoint(self.compute, x, state, places, use_reentrant=False)
        return self.compute(x, state, places)

    def compute(self, x: Tensor, state: MemoryState | None, places: Places | None) -> tuple[Tensor, MemoryState]:
        """The sum above."""
        answer, state = self.memory(self.memory_norm(x), state, places)
        x = x + self.drop(answer)
        return x + self.drop(self.mlp(self.mlp_norm(x))), state
