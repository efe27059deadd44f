"""Synchronous: a token enters both memories at once.

The fast weights hold all tokens, softmax sees the last `window` of them; recent tokens are in both memories.  It is
the only built-in timing in which the current token is already in the fast weights when they are read, which state
tracking needs.

    timing: {name: synchronous, window: 64}        window: null is full attention
"""

from typing import Annotated

from hqlt_lab.components.timings._options import Sinks
from hqlt_lab.ops.memory_schedule import Schedule
from hqlt_lab.registry import register


@register("timing", "synchronous")
def synchronous(
    window: Annotated[int | None, "Number of latest tokens that softmax sees; null: all."] = 64,
    sinks: Sinks = 0,
) -> Schedule:
    return Schedule(window=window, sinks=sinks)
