"""Interface of a feature map: applied to queries and keys before the fast weights, [.., K] -> [.., features(K)].

A map may widen the key, which makes the memory larger: the fast weights are a matrix of features x values.
"""

from typing import TYPE_CHECKING

from torch import Tensor, nn


class FeatureMap(nn.Module):
    """A map applied to queries and keys alike.  Update rules may rely on the properties it declares."""

    has_unit_norm: bool = False
    """Whether every feature vector has length 1 (or 0)."""
    has_bounded_norm: bool = False
    """Whether no feature vector is longer than 1, as with unit norm; also erasing rules are then stable."""
    is_nonnegative: bool = False
    """Whether all features are at least 0."""
    has_nonnegative_products: bool = False
    """Whether the product of any two feature vectors is at least 0, as with nonnegative features."""

    def features(self, dim: int) -> int:
        """Return the number of features of a query or key with `dim` channels."""
        return dim

    if TYPE_CHECKING:  # nn.Module declares its call as (...) -> Any

        def __call__(self, u: Tensor) -> Tensor: ...
