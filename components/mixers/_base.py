"""The contract of a mixer: the answers of the two memories in, one answer out.

`reads` says which memories it looks at; the layer computes no other.
"""

from typing import Literal

from torch import Tensor, nn


class Mixer(nn.Module):
    """fw and kv [B, H, T, V] become one [B, H, T, V]; gates are made of the token stream x [B, T, width]."""

    reads: tuple[Literal["fw", "kv"], ...] = ("fw", "kv")

    def forward(self, x: Tensor, fw: Tensor, kv: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} does not mix.")


def by_head(gate: Tensor, heads: int) -> Tensor:
    """[B, T, H * n] -> [B, H, T, n]."""
    return gate.unflatten(-1, (heads, -1)).transpose(1, 2)
