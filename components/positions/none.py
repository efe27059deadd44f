"""No positions: softmax compares the raw queries and keys.

The fast weights, and which tokens the window shows, still tell early from late.

    positions: none
"""

from hqlt_lab.components.positions._base import Positions
from hqlt_lab.registry import register


@register("positions", "none")
class None_(Positions):
    """No positions: softmax compares the raw queries and keys."""
