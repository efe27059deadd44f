"""Taylor features: features whose products are the second-order Taylor polynomial of the exponential, as in Based.

    u = P x,   s = sqrt(d)
    phi(x) = [1, u / sqrt(s), vec(u u^T) / (s sqrt(2))]                    1 + d + d^2 features
    phi(q) . phi(k) = 1 + z + z^2 / 2,   z = (P q) . (P k) / sqrt(d)      at least 1/2

With linear_attention this approximates softmax attention: exp(z) is replaced by its polynomial.  P projects the K
channels of a head to d = `dim` channels and is learned; it is one matrix for queries and keys of all heads, orthogonal
at the start.  Heads with at most `dim` channels are not projected.  Features are not normalized, so this
map is rejected for rules that erase under the key itself.  Products of features are positive, so linear_attention can
use its normalizer.

    feature_map: {name: taylor, dim: 16}

Arora et al. 2024, arXiv:2402.18668.
"""

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hqlt_lab.components.feature_maps._base import FeatureMap
from hqlt_lab.errors import ConfigError
from hqlt_lab.ops.precision import disable_autocast
from hqlt_lab.registry import register


@register("feature_map", "taylor")
class Taylor(FeatureMap):
    has_nonnegative_products = True

    def __init__(
        self,
        key_dim: int,
        dim: Annotated[
            int | None, "Queries and keys with more channels are projected to this number; null: no projection."
        ] = 16,
    ) -> None:
        super().__init__()
        if dim is not None and dim < 1:
            raise ConfigError.at("dim", "below_minimum", f"at least 1 is needed, got {dim}.")
        self.dim = key_dim if dim is None else min(dim, key_dim)
        self.project = nn.Linear(key_dim, self.dim, bias=False) if self.dim < key_dim else None

    def reset_parameters(self) -> None:
        """Start with an orthogonal projection, which keeps the scale of the channels."""
        if self.project is not None:
            nn.init.orthogonal_(self.project.weight)

    def features(self, dim: int) -> int:
        return 1 + self.dim + self.dim**2

    def forward(self, u: Tensor) -> Tensor:
        if self.project is not None:
            with disable_autocast(u):  # features stay in the precision of the fast weights
                u = F.linear(u, self.project.weight.to(u.dtype))
        u = u * self.dim**-0.25
        squares = (u[..., :, None] * u[..., None, :]).flatten(-2) * 2**-0.5
        return torch.cat([torch.ones_like(u[..., :1]), u, squares], -1)
