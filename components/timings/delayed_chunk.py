"""Delayed chunk: softmax sees the current chunk up to the token, the fast weights hold all earlier chunks.

Each past token is in exactly one memory.  All tokens of a chunk read the fast weights as they were before the chunk.
They are written at its end, each with its own gates.  `hold` sets the chunk length of the fast weights separately from
that of softmax.  The published HQLT kernels used hold 64 with window 16, so that some tokens were in neither memory.

    timing: {name: delayed_chunk, window: 64}
"""

from typing import Annotated

from hqlt_lab.components.timings._options import Sinks
from hqlt_lab.ops.memory_schedule import Schedule
from hqlt_lab.registry import register


@register("timing", "delayed_chunk")
def delayed_chunk(
    window: Annotated[int, "Tokens in a chunk."] = 64,
    hold: Annotated[int | None, "Tokens between two updates of the fast weights; null: one chunk."] = None,
    sinks: Sinks = 0,
) -> Schedule:
    return Schedule(hold=window if hold is None else hold, block=window, sinks=sinks)
