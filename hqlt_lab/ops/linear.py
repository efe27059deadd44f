"""A linear memory, scanned by whatever does it fastest."""

from torch import Tensor

from hqlt_lab.ops.backends import SCANS
from hqlt_lab.ops.choosing import Job, advise, choose
from hqlt_lab.ops.chunked import chunked
from hqlt_lab.ops.recurrent import recurrent
from hqlt_lab.ops.steps import PLAIN, Course, Gates, forward_mode


def scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gates: Gates,
    state: Tensor | None = None,
    course: Course = PLAIN,
    *,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """What `recurrent` does with `linear_step`; the arguments are the same."""
    job = Job(q.device.type, v.dtype, k.shape[3], v.shape[3], course.starts is not None, obstacle=obstacle(gates))
    match advise("fast weights", choose(SCANS, backend, job)).name:
        case "fla":
            from hqlt_lab.ops.fla_scan import fla_scan

            return fla_scan(q, k, v, gates, state, course)
        case "recurrent":
            return recurrent(q, k, v, gates, state, course)
        case _:
            return chunked(q, k, v, gates, state, course)


def obstacle(gates: Gates) -> str:
    """What keeps kernels for the usual rules from computing this one."""
    if gates.erase is not None and gates.write is not gates.erase:
        return "it erases and writes with one strength, and this rule with two"
    return "derivatives are taken forwards" if forward_mode() else ""
