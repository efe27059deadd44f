"""Interface of a mixer: combines the outputs of the two memories.

    y = a * fw + b * kv,   (a, b) = weights(x)

    mixer                a                  b                size of a, b      parameters per layer
    fw_only              1                  0                constants         0
    kv_only              0                  1                constants         0
    sum                  1                  1                constants         0
    static               learned            learned          one per layer     2
    scalar               sigmoid(W_a x)     sigmoid(W_b x)   one per head      2 * heads * width
    vector               c = sigmoid(W x)   1 - c            one per channel   width^2
    independent_vector   sigmoid(W_a x)     sigmoid(W_b x)   one per channel   2 * width^2

The weights of scalar, vector and independent_vector are computed for every token; those of static are the same for all
tokens.

A mixer implements `weights`, which the probes also use to measure how much of each memory passes
(`model/analysis/memory_probes.py`).  A mixer that is not a weighted sum overrides `forward` instead.  `reads` names the
memories it uses; the layer does not compute the others.
"""

from typing import TYPE_CHECKING, Literal

from torch import Tensor, nn

Weight = Tensor | float


class Mixer(nn.Module):
    """Combine fw and kv [B, H, T, V] into [B, H, T, V], with gates computed from the token stream x [B, T, width]."""

    reads: tuple[Literal["fw", "kv"], ...] = ("fw", "kv")

    def weights(self, x: Tensor) -> tuple[Weight, Weight]:
        """Return the weights of fw and kv: plain numbers, or tensors that broadcast to [B, H, T, V]."""
        raise NotImplementedError(f"{type(self).__name__} implements neither `weights` nor `forward`.")

    def forward(self, x: Tensor, fw: Tensor, kv: Tensor) -> Tensor:
        a, b = self.weights(x)
        return a * fw + b * kv

    if TYPE_CHECKING:  # nn.Module declares its call as (...) -> Any; a memory that is not in `reads` is passed as None

        def __call__(self, x: Tensor, fw: Tensor | None, kv: Tensor | None) -> Tensor: ...


def has_weights(mixer: nn.Module) -> bool:
    """Return whether the mixer implements `weights`."""
    return getattr(type(mixer), "weights", Mixer.weights) is not Mixer.weights


def split_heads(gate: Tensor, heads: int) -> Tensor:
    """Reshape [B, T, H * n] to [B, H, T, n]."""
    return gate.unflatten(-1, (heads, -1)).transpose(1, 2)
