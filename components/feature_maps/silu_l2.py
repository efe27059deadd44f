"""SiLU, then unit length: the feature map of the delta family.

    phi(u) = silu(u) / sqrt(|silu(u)|^2 + eps)

Unit keys make beta = 1 an exact replacement.  The eps keeps the zero vector zero, with a finite gradient.

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
    unit = True

    def forward(self, u: Tensor) -> Tensor:
        u = F.silu(u)
        return u * (u.square().sum(-1, keepdim=True) + EPS).rsqrt()
