"""Deterministic parameter-free projection (DPFP): products of neighboring rectified channels.

    r = relu([u, -u]),   phi(u) = [r * roll(r, 1), ..., r * roll(r, nu)]                     2 K nu features

Each feature is the product of two channels of r, so it is active in one part of the space only, and different keys
share few features.  K channels give 2 K nu features, and the memory is as much larger.

    norm: sum     features divided by their sum, as published for the delta rule; no vector is longer than 1
    norm: l2      features divided by their length
    norm: none    the products themselves, for rules without erase

    feature_map: {name: dpfp, nu: 3}

Schlag, Irie, Schmidhuber 2021, arXiv:2102.11174.
"""

from typing import Annotated, Literal

import torch
from torch import Tensor

from hqlt_lab.components.feature_maps._base import FeatureMap
from hqlt_lab.errors import ConfigError
from hqlt_lab.registry import register

EPS = 1e-6


@register("feature_map", "dpfp")
class Dpfp(FeatureMap):
    is_nonnegative = True
    has_nonnegative_products = True

    def __init__(
        self,
        nu: Annotated[int, "Number of shifts; a key of K channels has 2 K nu features."] = 1,
        norm: Annotated[Literal["sum", "l2", "none"], "What the features of a vector are divided by."] = "sum",
    ) -> None:
        super().__init__()
        if nu < 1:
            raise ConfigError.at("nu", "below_minimum", f"at least 1 is needed, got {nu}.")
        self.nu, self.norm = nu, norm
        self.has_unit_norm, self.has_bounded_norm = norm == "l2", norm != "none"

    def features(self, dim: int) -> int:
        return 2 * dim * self.nu

    def forward(self, u: Tensor) -> Tensor:
        r = torch.cat([u, -u], -1).relu()
        phi = torch.cat([r * r.roll(shift, -1) for shift in range(1, self.nu + 1)], -1)
        if self.norm == "sum":
            return phi / (phi.sum(-1, keepdim=True) + EPS)
        if self.norm == "l2":
            return phi * (phi.square().sum(-1, keepdim=True) + EPS**2).rsqrt()
        return phi
