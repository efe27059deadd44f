"""Delayed stream: a token enters the fast weights as it leaves the softmax window.

Each past token is in exactly one memory.  The pair of token t - window is written at step t; by the paper's equation
with the gates of token t, whose arrival pushes it out (`gates: current`), or with those it came with (`gates:
travel`).

    timing: {name: delayed_stream, window: 64, gates: travel}
"""

from typing import Annotated, Literal

from hqlt_lab.ops.schedule import Schedule
from hqlt_lab.registry import register


@register("timing", "delayed_stream")
def delayed_stream(
    window: Annotated[int, "The latest tokens, which softmax sees and the fast weights do not."] = 64,
    gates: Annotated[
        Literal["current", "travel"], "Whose gates a late pair is written with: the current token's, or its own."
    ] = "current",
) -> Schedule:
    return Schedule(delay=window, window=window, gates=gates)
