"""The contract of a feature map: what the fast weights see of a query or a key, [.., K] -> [.., K]."""

from torch import nn


class FeatureMap(nn.Module):
    """A map applied to queries and keys alike; what it promises is what rules may rely on."""

    unit: bool = False
    """Whether every feature vector has length 1 (or 0)."""
    positive: bool = False
    """Whether no feature is ever negative."""
