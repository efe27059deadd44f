"""Interface of a feature map: the map applied to queries and keys before the fast weights, [.., K] -> [.., K]."""

from typing import TYPE_CHECKING

from torch import Tensor, nn


class FeatureMap(nn.Module):
    """A map applied to queries and keys alike.  Update rules may rely on the properties it declares."""

    has_unit_norm: bool = False
    """Whether every feature vector has length 1 (or 0)."""
    is_nonnegative: bool = False
    """Whether all features are at least 0."""

    if TYPE_CHECKING:  # nn.Module declares its call as (...) -> Any

        def __call__(self, u: Tensor) -> Tensor: ...
