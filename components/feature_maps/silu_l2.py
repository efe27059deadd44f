"""SiLU followed by L2 normalization: the feature map of the delta-rule family.

    phi(u) = silu(u) / sqrt(|silu(u)|^2 + eps)

With unit keys, beta = 1 replaces a value exactly.  Because of eps the zero vector is mapped to zero with a finite
gradient.

    feature_map: silu_l2

Yang et al. 2024, arXiv:2406.06484.
"""

import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.components.feature_maps._base import FeatureMap
from hqlt_lab.registry import register

EPS = 1e-6


@register("feature_map", "silu_l2")
class SiluL2(FeatureMap):
    has_unit_norm = True

    def forward(self, u: Tensor) -> Tensor:
        u = F.silu(u)
        return u * (u.square().sum(-1, keepdim=True) + EPS).rsqrt()
