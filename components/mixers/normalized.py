"""Normalized: the output of each memory is normalized, scaled per channel, and added.

    y = c * fw / rms(fw) + d * kv / rms(kv),   c and d learned, one per channel, initialized to 1

rms is over all channels of a token, so that neither memory outweighs the other because its values are larger.  At
initialization it equals `sum` if both outputs have an rms of 1.

    mixer: normalized

Dong et al. 2024, arXiv:2411.13676 (Hymba, which halves the sum).
"""

from torch import Tensor, nn

from hqlt_lab.components._heads import HeadNorm, split_heads
from hqlt_lab.components.mixers._base import Mixer
from hqlt_lab.registry import register

EPS = 1e-6


@register("mixer", "normalized")
class Normalized(Mixer):
    def __init__(self, heads: int, value_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleDict({name: HeadNorm(heads * value_dim, eps=EPS) for name in ("fw", "kv")})

    def contributions(self, x: Tensor, fw: Tensor, kv: Tensor) -> tuple[Tensor, Tensor]:
        return self.normalize("fw", fw), self.normalize("kv", kv)

    def normalize(self, name: str, output: Tensor) -> Tensor:
        """Return the output of a memory [B, H, T, V], normalized and scaled."""
        return split_heads(self.norms[name](output.transpose(1, 2).flatten(2)), self.heads)

    def own_modules(self, memory: str) -> list[nn.Module]:
        return [self.norms[memory]]
