"""How much of this machine a cell gets: pure functions of what there is, and one that looks.

GPUs are shared in fractions (`gpus: 0.25` puts four cells on each) or taken whole, several at a time.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.cell import Cell

WORKER_MEMORY = 2**30  # bytes that a worker of a small cell needs, libraries included


@dataclass(frozen=True)
class Machine:
    """What there is to share."""

    cores: int
    memory: int  # bytes that are free
    gpus: int


def this_machine() -> Machine:
    """The cores this process may use, and the GPUs it sees; no GPU is touched."""
    import psutil
    import torch

    return Machine(len(os.sched_getaffinity(0)), psutil.virtual_memory().available, torch.cuda.device_count())


def share(need: float) -> Fraction:
    """An exact part of a GPU, so that ten tenths are one; several GPUs are whole ones."""
    part = Fraction(str(need)).limit_denominator(100)
    if part < 0 or (part > 1 and part.denominator != 1):
        raise ConfigError(f"launcher.gpus: {need} is neither a part of one GPU nor a number of whole ones.")
    return part


def gpus_of(cell: Cell, wanted: float | None, there: int) -> float:
    """What one cell takes where so many GPUs are: what was wanted, or one for each of its devices."""
    if cell.trainer.accelerator == "cpu" or (there == 0 and cell.trainer.accelerator == "auto"):
        return 0
    return cell.trainer.devices if wanted is None or cell.trainer.devices > 1 else wanted


def assign(need: Fraction, free: Sequence[Fraction]) -> tuple[int, ...] | None:
    """The GPUs for a cell, or None if it has to wait.

    A part goes where least is left over, so that others stay whole.
    """
    if need == 0:
        return ()
    if need < 1:
        fitting = [index for index, left in enumerate(free) if left >= need]
        return (min(fitting, key=lambda index: (free[index], index)),) if fitting else None
    whole = [index for index, left in enumerate(free) if left == 1]
    return tuple(whole[: int(need)]) if len(whole) >= need else None


def at_once(machine: Machine, need: Fraction) -> int:
    """How many cells fit on the machine: as many as its GPUs take, or one per core while memory lasts."""
    if need > machine.gpus:
        raise ConfigError(f"trainer.devices: a cell needs {need} GPUs, and there are {machine.gpus}.")
    if need >= 1:
        return machine.gpus // int(need)
    if need > 0:
        return machine.gpus * floor(1 / need)
    return max(1, min(machine.cores, machine.memory // WORKER_MEMORY))
