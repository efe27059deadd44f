"""Every backend beside the truth, for every rule and timing it claims: the matrix of `hqlt check backends`.

A cell is one backend in one precision with one rule (softmax: none) and one timing.  On a machine without a GPU fla's
kernels go through Triton's interpreter, in a process of their own, and flex is compared without gradients, which torch
does not have there.  What needs a GPU says so; `pytest -m gpu` looks at it on a machine that has one.

    python -m hqlt_lab.check.backends        the cells of fla, a line of JSON each; needs TRITON_INTERPRET=1
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

import torch

from hqlt_lab.check.interpreter import interpret
from hqlt_lab.check.subject import small
from hqlt_lab.check.trial import CASES, HEADS, TOLERANCE, WIDTH, Case, Trial
from hqlt_lab.components.update_rules._base import UpdateRule
from hqlt_lab.errors import ConfigError, HqltError, did_you_mean, listed
from hqlt_lab.model.config import OpsConfig
from hqlt_lab.ops.backends import ATTENTIONS, SCANS, TRUTHS, interpreted, name_of
from hqlt_lab.ops.choosing import Job, installed, none, reason
from hqlt_lab.registry import available, build

PRECISIONS = {  # what each is tried in without a GPU, and with one; the others in float64
    "fla": ((torch.float32, torch.float16), (torch.bfloat16, torch.float16)),
    "flash_attn": ((torch.bfloat16,), (torch.bfloat16, torch.float16)),
    "flex": ((torch.float64,), (torch.bfloat16, torch.float32)),
}


@dataclass(frozen=True)
class Compared:
    """One cell.  `error` is None where there was nothing to compare, and `detail` says why."""

    backend: str
    precision: str
    rule: str  # empty for softmax
    timing: str
    outcome: Literal["passed", "failed", "not here"]
    error: float | None
    detail: str


def matrix(backend: str | None = None, device: str | None = None) -> Iterator[Compared]:
    """The cells of one backend, or of all, as they are done."""
    names = [name for name in (*SCANS, *ATTENTIONS) if name not in TRUTHS]
    if backend is not None and backend not in names:
        raise ConfigError(f"There is no backend {backend!r}.{did_you_mean(backend, names)} There is: {listed(names)}.")
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    for name in [backend] if backend else names:
        if name == "fla" and device == "cpu" and installed("fla") and not interpreted():
            yield from in_the_interpreter()
        else:
            yield from cells(name, device)


def cells(backend: str, device: str) -> Iterator[Compared]:
    if backend == "fla" and device == "cpu" and interpreted():
        interpret()
    for dtype in PRECISIONS.get(backend, ((torch.float64,),) * 2)[device == "cuda"]:
        for rule in available("update_rule") if backend in SCANS else [""]:
            for timing in available("timing"):
                yield compared(backend, dtype, rule, timing, device)


def compared(backend: str, dtype: torch.dtype, rule: str, timing: str, device: str) -> Compared:
    """One cell: the worst of its cases, or the first that is not within what its precision allows."""
    size, there = WIDTH // HEADS, (backend, name_of(dtype), rule, timing)
    job = Job(device, dtype, size, size, learning=not untaught(backend, device))
    if why_not := refusal(backend, rule, job):
        return Compared(*there, "not here", None, why_not)
    ops = OpsConfig(scan=backend) if rule else OpsConfig(attention=backend)  # type: ignore[arg-type]
    mixer = "fw_only" if rule else "kv_only"
    trial = Trial(rule or "delta", small("timing", timing), mixer, ops, device, dtype)
    worst, of = 0.0, ""
    try:
        for case, error in trial.errors(cases(backend, job)):
            if not error <= TOLERANCE[dtype]:  # also where it is no number
                return Compared(*there, "failed", error, case.name)
            worst, of = max((worst, of), (error, case.name))
    except HqltError as refused:
        return Compared(*there, "failed", None, str(refused))
    return Compared(*there, "passed", worst, "without gradients" if untaught(backend, device) else of)


def refusal(backend: str, rule: str, job: Job) -> str:
    """Why this backend does not compute this rule here."""
    if not rule:
        return reason(ATTENTIONS[backend], job)
    made: UpdateRule = build("update_rule", small("update_rule", rule), width=WIDTH, heads=HEADS)
    with torch.no_grad():
        gates = made.gates(torch.zeros(1, 1, WIDTH))
    made.backend = backend
    try:
        chosen = made.computed_by(gates, job)
    except ConfigError:
        return reason(SCANS[backend], job) or "it does not compute this rule"
    return "" if chosen.name == backend else chosen.why


def cases(backend: str, job: Job) -> tuple[Case, ...]:
    """Those that it claims; where it goes on from a state with documents, it need not show documents alone."""
    cannot = ATTENTIONS[backend].cannot if backend in ATTENTIONS else none
    able = [case for case in CASES if not cannot(job._replace(past=case.past, documents=case.documents))]
    names = {case.name for case in able}
    chosen = [case for case in able if case.name != "documents" or "going on" not in names]
    return tuple(case._replace(learning=case.learning and job.learning) for case in chosen)


def untaught(backend: str, device: str) -> bool:
    """Whether it has no backward there."""
    return backend == "flex" and device == "cpu"


def in_the_interpreter() -> Iterator[Compared]:
    """The cells of fla without a GPU; Triton has to know from its start that it interprets."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "hqlt_lab.check.backends"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield Compared(**json.loads(line))
    if process.returncode:
        raise HqltError(f"fla's kernels could not be run in Triton's interpreter (exit code {process.returncode}).")


if __name__ == "__main__":
    for cell in cells("fla", "cpu"):
        print(json.dumps(asdict(cell)), flush=True)
