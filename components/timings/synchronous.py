"""Synchronous: a token enters both memories at once.

The fast weights hold the whole past, softmax the last `window` tokens of it; what is recent is in both.  The one
timing of the three in which the fast weights see the current token, which is what state tracking needs.

    timing: {name: synchronous, window: 64}        window: null is full attention
"""

from typing import Annotated

from hqlt_lab.ops.schedule import Schedule
from hqlt_lab.registry import register


@register("timing", "synchronous")
def synchronous(
    window: Annotated[int | None, "The latest tokens that softmax sees; null: all of them."] = 64,
) -> Schedule:
    return Schedule(window=window)
