"""Delayed stream: a token enters the fast weights as it leaves the softmax window.

Each past token is in exactly one memory.  The pair of token t - window is written at step t; by the paper's equation
with the gates of token t, whose arrival pushes it out (`gates: current`), or with those it came with (`gates:
travel`).

    timing: {name: delayed_stream, window: 64, gates: travel}
"""

from typing import Literal

from hqlt_lab.ops.schedule import Schedule
from hqlt_lab.registry import register


@register("timing", "delayed_stream")
def delayed_stream(window: int = 64, gates: Literal["current", "travel"] = "current") -> Schedule:
    return Schedule(delay=window, window=window, gates=gates)
