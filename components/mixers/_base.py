"""The contract of a mixer: the answers of the two memories in, one answer out.

    y = a * fw + b * kv,   (a, b) = weights(x)

A mixer gives `weights`, which also tell how much of each memory passes (`model/probes.py`).  One that is no weighted
sum overrides `forward` and gives none.  `reads` says which memories it looks at; the layer computes no other.
"""

from typing import Literal

from torch import Tensor, nn

Weight = Tensor | float


class Mixer(nn.Module):
    """fw and kv [B, H, T, V] become one [B, H, T, V]; gates are made of the token stream x [B, T, width]."""

    reads: tuple[Literal["fw", "kv"], ...] = ("fw", "kv")

    def weights(self, x: Tensor) -> tuple[Weight, Weight]:
        """How much of fw and of kv passes: plain numbers, or tensors that broadcast to [B, H, T, V]."""
        raise NotImplementedError(f"{type(self).__name__} gives no weights, and does not mix without.")

    def forward(self, x: Tensor, fw: Tensor, kv: Tensor) -> Tensor:
        a, b = self.weights(x)
        return a * fw + b * kv


def gives_weights(mixer: nn.Module) -> bool:
    """Whether it says how much of each memory passes."""
    return getattr(type(mixer), "weights", Mixer.weights) is not Mixer.weights


def by_head(gate: Tensor, heads: int) -> Tensor:
    """[B, T, H * n] -> [B, H, T, n]."""
    return gate.unflatten(-1, (heads, -1)).transpose(1, 2)
