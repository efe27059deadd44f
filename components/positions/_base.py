"""Interface of positions: add a position code to the embedded tokens, or rotate the queries and keys of softmax.

The fast weights receive positions only through the embedding.
"""

from typing import Annotated

from torch import Tensor, nn

WaveBase = Annotated[float, "Ratio of the longest to the shortest wavelength, approximately."]


class Positions(nn.Module):
    """Base class in which both methods change nothing; a component overrides one of them.

    A component that overrides `embed` alone is built once per model; its layers do not see it.
    """

    max_length: int | None = None
    """Tokens of the longest document that has positions; None: any length.  The model checks it."""

    def embed(self, x: Tensor, position: Tensor) -> Tensor:
        """Add positions [B or 1, T] to the embedded tokens x [B, T, width]."""
        return x

    def rotate(self, u: Tensor, position: Tensor) -> Tensor:
        """Rotate softmax queries or keys u [B, H, T, K] by positions [B or 1, T], negative before the sequence."""
        return u
