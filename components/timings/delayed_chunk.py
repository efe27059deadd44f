"""Delayed chunk: within a chunk softmax sees the chunk so far, the fast weights all chunks before it.

Each past token is in exactly one memory.  The fast weights are read as they were when the chunk began; its tokens are
written when it ends, each with its own gates.  `hold` sets the fast weights' chunk apart from the softmax's: 64 with
window 16 is what the published kernels computed, and leaves tokens that are in neither memory.

    timing: {name: delayed_chunk, window: 64}
"""

from typing import Annotated

from hqlt_lab.ops.schedule import Schedule
from hqlt_lab.registry import register


@register("timing", "delayed_chunk")
def delayed_chunk(
    window: Annotated[int, "Tokens in a chunk."] = 64,
    hold: Annotated[int | None, "Tokens between two writes to the fast weights; null: as many as in a chunk."] = None,
) -> Schedule:
    return Schedule(hold=window if hold is None else hold, block=window)
