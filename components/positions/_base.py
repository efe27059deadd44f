"""The contract of positions: a token's place may be added to its embedding, or turn its softmax queries and keys.

The fast weights never see positions other than through the embedding.
"""

from typing import Annotated

from torch import Tensor, nn

WaveBase = Annotated[float, "The slowest wave is about this many times as long as the fastest."]


class Positions(nn.Module):
    """Does nothing in both places; a part overrides one."""

    def embed(self, x: Tensor, place: Tensor) -> Tensor:
        """The embedded tokens x [B, T, width] at their places [B or 1, T]."""
        return x

    def turn(self, u: Tensor, place: Tensor) -> Tensor:
        """Softmax queries or keys u [B, H, T, K] at their places [B or 1, T], negative before the text."""
        return u
