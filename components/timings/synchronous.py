"""Synchronous: a token enters both memories at once.

The fast weights hold the whole past, softmax the last `window` tokens of it; what is recent is in both.  The one
timing of the three in which the fast weights see the current token, which is what state tracking needs.

    timing: {name: synchronous, window: 64}        window: null is full attention
"""

from hqlt_lab.ops.schedule import Schedule
from hqlt_lab.registry import register


@register("timing", "synchronous")
def synchronous(window: int | None = 64) -> Schedule:
    return Schedule(window=window)
