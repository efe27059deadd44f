"""Interface of a mixer: combines the outputs of the two memories.

    y = a * fw + b * kv,   (a, b) = weights(x)

    mixer                a                  b                size of a, b      parameters per layer
    fw_only              1                  0                constants         0
    kv_only              0                  1                constants         0
    sum                  1                  1                constants         0
    static               learned            learned          one per layer     2
    scalar               sigmoid(W_a x)     sigmoid(W_b x)   one per head      2 * heads * width
    vector               c = sigmoid(W x)   1 - c            one per channel   C * width
    independent_vector   sigmoid(W_a x)     sigmoid(W_b x)   one per channel   2 * C * width
    softmax              softmax of both logits W x          one per head      2 * heads * width
    normalized           c / rms(fw)        d / rms(kv)      one per channel   2 * C
    head_split           1 for the first    1 for the rest   constants         0

C = heads * value_dim are the channels of each output, by default the width of the stream.

The weights of scalar, vector, independent_vector and softmax are computed for every token; those of static are the same
for all tokens, and so are c and d.

A mixer implements `weights`, or `contributions` if its summands are not the outputs times weights of x.  The probes use
both to measure how much of each memory passes (`model/analysis/layer_probes.py`).  A mixer that is not a sum overrides
`forward` instead.  `reads` names the memories it uses; the layer does not compute the others.  A mixer may also give
each memory its own heads (`own_heads`); fw and kv are then the outputs of these heads alone.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from torch import Tensor, nn

Weight = Tensor | float


class Mixer(nn.Module):
    """Combine fw and kv [B, H, T, V] into [B, H, T, V], with gates computed from the token stream x [B, T, width]."""

    reads: tuple[Literal["fw", "kv"], ...] = ("fw", "kv")
    own_heads: Mapping[str, int] | None = None
    """Number of heads that each memory answers alone; None: both memories answer all heads."""

    def weights(self, x: Tensor) -> tuple[Weight, Weight]:
        """Return the weights of fw and kv: plain numbers, or tensors that broadcast to [B, H, T, V]."""
        raise NotImplementedError(f"{type(self).__name__} implements none of `weights`, `contributions`, `forward`.")

    def contributions(self, x: Tensor, fw: Tensor, kv: Tensor) -> tuple[Tensor, Tensor]:
        """Return the summands of the output [B, H, T, V] that come from fw and kv."""
        a, b = self.weights(x)
        return a * fw, b * kv

    def forward(self, x: Tensor, fw: Tensor, kv: Tensor) -> Tensor:
        from_fw, from_kv = self.contributions(x, fw, kv)
        return from_fw + from_kv

    def own_modules(self, memory: str) -> list[nn.Module]:
        """Return the modules that serve only one memory, "fw" or "kv", and are trained with it."""
        return []

    if TYPE_CHECKING:  # nn.Module declares its call as (...) -> Any; a memory that is not in `reads` is passed as None

        def __call__(self, x: Tensor, fw: Tensor | None, kv: Tensor | None) -> Tensor: ...


def has_weights(mixer: nn.Module) -> bool:
    """Return whether the mixer implements `weights`."""
    return getattr(type(mixer), "weights", Mixer.weights) is not Mixer.weights


def has_contributions(mixer: nn.Module) -> bool:
    """Return whether the output of the mixer is a sum of what comes from each memory."""
    return has_weights(mixer) or getattr(type(mixer), "contributions", None) is not Mixer.contributions
