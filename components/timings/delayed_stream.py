"""Delayed stream: a token enters the fast weights as it leaves the softmax window.

Each past token is in exactly one memory.  The key-value pair of token t - window is written at step t: with the gates
of token t (`gates: current`), as in the equation of the HQLT paper, or with its own (`gates: own`).

    timing: {name: delayed_stream, window: 64, gates: own}
"""

from typing import Annotated, Literal

from hqlt_lab.components.timings._options import Sinks
from hqlt_lab.ops.memory_schedule import Schedule
from hqlt_lab.registry import register


@register("timing", "delayed_stream")
def delayed_stream(
    window: Annotated[int, "Number of latest tokens, which softmax sees and the fast weights do not."] = 64,
    gates: Annotated[
        Literal["current", "own"],
        "Gates with which a delayed key-value pair is written: the current token's, or its own.",
    ] = "current",
    sinks: Sinks = 0,
) -> Schedule:
    return Schedule(delay=window, window=window, gates=gates, sinks=sinks)
