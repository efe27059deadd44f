"""ELU plus one: features that are never negative, for linear attention with a normalizer.

    phi(u) = elu(u) + 1 = e^{min(u, 0)} + max(u, 0)

The features are positive, so the normalizer of linear attention cannot vanish.

    feature_map: elu_plus_one

Katharopoulos et al. 2020, arXiv:2006.16236.
"""

from torch import Tensor

from hqlt_lab.components.feature_maps._base import FeatureMap
from hqlt_lab.registry import register


@register("feature_map", "elu_plus_one")
class EluPlusOne(FeatureMap):
    is_nonnegative = True

    def forward(self, u: Tensor) -> Tensor:
        # equals F.elu(u) + 1, whose backward returns other strides than torch.compile expects
        return u.clamp(max=0).exp() + u.relu()
