"""Identity: queries and keys enter the fast weights as they are projected.

    phi(u) = u

The features are neither normalized nor positive, so this map is rejected for rules that erase under the key itself.

    feature_map: identity

Used by gated linear attention (Yang et al. 2023, arXiv:2312.06635).
"""

from torch import Tensor

from hqlt_lab.components.feature_maps._base import FeatureMap
from hqlt_lab.registry import register


@register("feature_map", "identity")
class Identity(FeatureMap):
    def forward(self, u: Tensor) -> Tensor:
        return u
