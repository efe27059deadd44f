"""CPU, memory and GPU shares of a cell: pure functions of the machine's resources, and one that detects them.

GPUs are shared in fractions (`gpus: 0.25` puts four cells on each) or allocated whole, several at a time.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.cell import Cell

MEMORY_PER_WORKER = 2**30  # bytes that a worker with a small cell needs, libraries included


@dataclass(frozen=True)
class MachineResources:
    """Resources of one machine that cells can share."""

    cores: int
    free_memory: int  # bytes
    gpus: int


def detect_resources() -> MachineResources:
    """Return the cores this process may use, the free memory and the visible GPUs, without initializing CUDA."""
    import psutil
    import torch

    return MachineResources(len(os.sched_getaffinity(0)), psutil.virtual_memory().available, torch.cuda.device_count())


def gpu_fraction(requested_gpus: float) -> Fraction:
    """Return the requested GPUs as an exact fraction, so that ten times 0.1 is 1; above 1 it must be a whole number."""
    fraction = Fraction(str(requested_gpus)).limit_denominator(100)
    if fraction < 0 or (fraction > 1 and fraction.denominator != 1):
        message = f"{requested_gpus} is neither a fraction of one GPU nor a whole number of GPUs."
        raise ConfigError.at("launcher.gpus", "invalid_gpu_fraction", message)
    return fraction


def gpus_for_cell(cell: Cell, requested_gpus: float | None, available_gpus: int) -> float:
    """Return the number of GPUs that a cell takes: the requested number, or one for each of its devices."""
    if cell.trainer.accelerator == "cpu" or (available_gpus == 0 and cell.trainer.accelerator == "auto"):
        return 0
    return cell.trainer.devices if requested_gpus is None or cell.trainer.devices > 1 else requested_gpus


def allocate_gpus(gpu_request: Fraction, free_gpus: Sequence[Fraction]) -> tuple[int, ...] | None:
    """Return the indices of the GPUs for a cell, or None if it has to wait.

    Best fit: a fractional request is placed on the fullest GPU on which it fits.
    """
    if gpu_request == 0:
        return ()
    if gpu_request < 1:
        candidates = [index for index, free in enumerate(free_gpus) if free >= gpu_request]
        return (min(candidates, key=lambda index: (free_gpus[index], index)),) if candidates else None
    unused = [index for index, free in enumerate(free_gpus) if free == 1]
    return tuple(unused[: int(gpu_request)]) if len(unused) >= gpu_request else None


def max_concurrent_cells(machine: MachineResources, gpu_request: Fraction) -> int:
    """Return how many cells fit on the machine: limited by its GPUs, or by cores and memory if cells need no GPU."""
    if gpu_request > machine.gpus:
        message = f"a cell needs {gpu_request} GPUs, but this machine has {machine.gpus}."
        raise ConfigError.at("trainer.devices", "too_few_gpus", message)
    if gpu_request >= 1:
        return machine.gpus // int(gpu_request)
    if gpu_request > 0:
        return machine.gpus * floor(1 / gpu_request)
    return max(1, min(machine.cores, machine.free_memory // MEMORY_PER_WORKER))
