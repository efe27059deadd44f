"""No positions: softmax compares the raw queries and keys.

The order of tokens still matters: the fast weights depend on it, and so does the content of the softmax window.

    positions: none
"""

from hqlt_lab.components.positions._base import Positions
from hqlt_lab.registry import register


@register("positions", "none")
class None_(Positions):
    """No positions: softmax compares the raw queries and keys."""
