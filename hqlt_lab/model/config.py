"""What a model is made of, in the words of the YAML file; no torch is needed to read or check it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hqlt_lab.errors import listed
from hqlt_lab.registry import settings_from, split, too_large, too_small
from hqlt_lab.registry.settings import refuse

PerLayer = Any  # a part, or a list of parts that repeats over the layers
PARTS = ("update_rule", "timing", "mixer", "positions", "feature_map")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """One composition.  A part is its name or {name: ..., option: ...}; a list of parts repeats over the layers."""

    vocabulary: int | None = None
    """Tokens it reads and predicts; null: vectors in, vectors out."""
    width: int = 128
    """Channels of the residual stream."""
    heads: int = 4
    """Independent memories per layer; each has width / heads channels."""
    layers: int = 2
    """Blocks."""
    update_rule: PerLayer = "delta"
    """How a token changes the fast weights."""
    timing: PerLayer = "synchronous"
    """When a token enters which memory."""
    mixer: PerLayer = "vector"
    """How the two memories' answers become one."""
    positions: PerLayer = "rope"
    """How softmax knows where a token stood."""
    feature_map: PerLayer = None
    """What the fast weights see of a query or a key; null: the update rule's own."""
    value_activation: Literal["silu", "none"] = "silu"
    """Applied to the values that both memories store."""
    head_norm: bool = True
    """RMSNorm per head on the mixed answer."""
    output_gate: bool = False
    """A SiLU gate on the mixed answer."""
    short_conv: int = 0
    """Taps of a causal depthwise convolution on queries, keys and values; 0: none."""
    norm: Literal["rms", "layer"] = "rms"
    """Normalisation before each sub-layer."""
    norm_eps: float = 1e-6
    """Added to the mean square in every normalisation."""
    mlp: Literal["swiglu", "gelu"] = "swiglu"
    """The feed-forward sub-layer."""
    mlp_width: int | None = None
    """Its inner width; null: swiglu 8/3 of the width rounded up to a multiple of 256, gelu 4 times the width."""
    bias: bool = False
    """Biases on the linear maps of memory and MLP."""
    dropout: float = 0.0
    """Share of the numbers that training drops, from what is embedded and from what each sub-layer adds to it."""
    tie_embeddings: bool = False
    """One matrix for reading and predicting tokens."""
    init_std: float = 0.02
    """Standard deviation of the initial weights."""
    residual_init: Literal["rescaled", "normal"] = "rescaled"
    """Maps into the residual stream start as U(+-1/sqrt(fan in)) / sqrt(2 layers), or like all others."""

    def __post_init__(self) -> None:
        sizes = self._sizes()
        refuse([*sizes, *self._parts()], () if sizes else self._together())

    def _sizes(self) -> list[str]:
        least = {"width": 1, "heads": 1, "layers": 1, "vocabulary": 1, "mlp_width": 1, "short_conv": 0}
        most = {"width": 2**20, "layers": 1000, "mlp_width": 2**22, "short_conv": 2**10}
        found = too_small(self, least) + too_large(self, most)
        if not 0 <= self.dropout < 1:
            found.append(f"dropout: a share from 0 to less than 1 is needed, got {self.dropout}.")
        return found

    def _together(self) -> list[str]:
        found = []
        if self.width % self.heads:
            divisors = listed(str(n) for n in range(1, self.width + 1) if self.width % n == 0)
            found.append(f"heads: {self.width} channels do not divide over {self.heads} heads. Use one of {divisors}.")
        if self.tie_embeddings and self.vocabulary is None:
            found.append("tie_embeddings: there are no embeddings to tie without a vocabulary.")
        for kind in PARTS:
            parts = getattr(self, kind)
            if isinstance(parts, list) and (not parts or self.layers % len(parts)):
                found.append(f"{kind}: a list of {len(parts)} parts does not repeat evenly over {self.layers} layers.")
        return found

    def _parts(self) -> list[str]:
        found = []
        for kind in PARTS:
            given = getattr(self, kind)
            for number, part in enumerate(given if isinstance(given, list) else [given]):
                if part is not None or kind != "feature_map":
                    try:
                        split(kind, part, f"{kind}[{number}]" if isinstance(given, list) else kind)
                    except ValueError as error:
                        found.append(str(error))
        return found

    def part(self, kind: str, layer: int) -> Any:
        """The part of that kind in that layer."""
        given = getattr(self, kind)
        return given[layer % len(given)] if isinstance(given, list) else given


@dataclass(frozen=True, kw_only=True)
class OpsConfig:
    """What computes the two memories: how fast, not what.  See `hqlt_lab.ops.backends`."""

    scan: Literal["auto", "fla", "torch", "recurrent"] = "auto"
    """What writes and reads the fast weights; auto: the fastest that can."""
    attention: Literal["auto", "flash_attn", "sdpa", "flex", "blocks", "dense"] = "auto"
    """What computes softmax attention; auto: the fastest that can."""


def inner_width(width: int, mlp: str, mlp_width: int | None) -> int:
    """Of the MLP, also where the settings leave it open."""
    if mlp_width is not None:
        return mlp_width
    return -(-(width * 8 // 3) // 256) * 256 if mlp == "swiglu" else 4 * width


def model_config(settings: Mapping[str, Any]) -> ModelConfig:
    """From a mapping, with a sentence for every word that is not a setting."""
    return settings_from(ModelConfig, settings)
