"""One worker, as its coordinator sees it."""

import os
import signal
from dataclasses import dataclass
from fractions import Fraction
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess


@dataclass(eq=False)
class Member:
    """One worker, as the coordinator sees it."""

    process: BaseProcess
    pipe: Connection
    gpus: tuple[int, ...] | None = None  # those it has seen; None: it was never told
    key: str | None = None  # the cell it is at
    need: Fraction = Fraction(0)
    since: float = 0.0
    spoke: bool = False
    asked: bool = False  # to save and stop, which is said once: the second time means at once
    fate: str = ""  # why we ended it, if we did


def visible(gpus: tuple[int, ...]) -> str:
    """What the worker's CUDA_VISIBLE_DEVICES must be, given our own."""
    ours = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return ",".join(ours[index] if ours else str(index) for index in gpus)


def cause(exitcode: int | None) -> str:
    """Why a process may have died, for people."""
    if exitcode == -signal.SIGKILL:
        return "Its process was killed; if nobody did it, the machine ran out of memory."
    if exitcode is not None and exitcode < 0:
        return f"Its process died of {signal.Signals(-exitcode).name}."
    return f"Its process ended with code {exitcode}."
