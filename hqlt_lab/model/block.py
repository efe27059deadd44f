"""One block: a memory and an MLP with pre-normalization, each added to the residual stream.

x += drop(memory(norm(x)));   x += drop(mlp(norm(x)))

A layer with `mlp: none` consists of its memory alone.  With `mlp: identity` the second line is x += drop(norm(x)).
With `layer_kind: gated_conv` a gated convolution takes the place of the memory.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hqlt_lab.model.batch_layout import TokenPositions
from hqlt_lab.model.config import ModelConfig, mlp_inner_width
from hqlt_lab.model.gated_convolution import GatedConvolution
from hqlt_lab.model.hybrid_memory import HybridMemory, ResidualProjection
from hqlt_lab.model.state import MemoryState
from hqlt_lab.ops.fused.gated_mlp import swiglu


class SwiGlu(nn.Module):
    """down(silu(gate x) * up x)."""

    def __init__(self, width: int, inner_width: int, bias: bool) -> None:
        super().__init__()
        self.gate = nn.Linear(width, inner_width, bias=bias)
        self.up = nn.Linear(width, inner_width, bias=bias)
        self.down = ResidualProjection(inner_width, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate.bias is None:
            return swiglu(x, self.gate.weight, self.up.weight, self.down.weight)
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Gelu(nn.Module):
    """down(gelu(up x))."""

    def __init__(self, width: int, inner_width: int, bias: bool) -> None:
        super().__init__()
        self.up = nn.Linear(width, inner_width, bias=bias)
        self.down = ResidualProjection(inner_width, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


def make_mlp(config: ModelConfig, kind: str) -> nn.Module:
    """Return the feed-forward sub-layer of that kind."""
    if kind == "identity":
        return nn.Identity()
    mlp_class = SwiGlu if kind == "swiglu" else Gelu
    return mlp_class(config.width, mlp_inner_width(config.width, kind, config.mlp_width), config.bias)


def make_norm(config: ModelConfig) -> nn.Module:
    """Return the normalization used before each sub-layer and before the head."""
    norm_class = nn.RMSNorm if config.norm == "rms" else nn.LayerNorm
    return norm_class(config.width, eps=config.norm_eps)


class Block(nn.Module):
    """forward(x [B, T, width], state, token_positions) -> x, state."""

    def __init__(self, config: ModelConfig, layer: int = 0) -> None:
        super().__init__()
        self.memory_norm = make_norm(config)
        has_memory = config.has_memory(layer)
        self.memory: nn.Module = HybridMemory(config, layer) if has_memory else GatedConvolution(config.width)
        kind = config.mlp_kind(layer)
        self.mlp_norm = None if kind == "none" else make_norm(config)
        self.mlp = None if kind == "none" else make_mlp(config, kind)
        self.drop = nn.Dropout(config.dropout if config.dropout_on == "all" else 0.0)
        self.recompute_activations = False  # activation checkpointing

    def forward(
        self, x: Tensor, state: MemoryState | None = None, token_positions: TokenPositions | None = None
    ) -> tuple[Tensor, MemoryState]:
        if self.recompute_activations and torch.is_grad_enabled():
            return checkpoint(self.apply_sublayers, x, state, token_positions, use_reentrant=False)
        return self.apply_sublayers(x, state, token_positions)

    def apply_sublayers(
        self, x: Tensor, state: MemoryState | None, token_positions: TokenPositions | None
    ) -> tuple[Tensor, MemoryState]:
        memory_output, state = self.memory(self.memory_norm(x), state, token_positions)
        x = x + self.drop(memory_output)
        if self.mlp is not None and self.mlp_norm is not None:
            x = x + self.drop(self.mlp(self.mlp_norm(x)))
        return x, state
