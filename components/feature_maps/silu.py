"""SiLU without normalization: the feature map of Mamba-2 and HGRN2.

    phi(u) = u sigmoid(u)

The features are not normalized, so this map is rejected for rules that erase under the key itself.

    feature_map: silu

Dao, Gu 2024, arXiv:2405.21060; Qin et al. 2024, arXiv:2404.07904.
"""

import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.components.feature_maps._base import FeatureMap
from hqlt_lab.registry import register


@register("feature_map", "silu")
class Silu(FeatureMap):
    def forward(self, u: Tensor) -> Tensor:
        return F.silu(u)
