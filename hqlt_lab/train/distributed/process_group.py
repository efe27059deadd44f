"""Rank, world size and all-reduce that also work without a process group (as rank 0 of 1)."""

import torch.distributed as dist
from torch import Tensor


def is_distributed() -> bool:
    """Return whether a process group is initialized."""
    return dist.is_available() and dist.is_initialized()


def get_rank() -> int:
    """Return the rank of this process, 0 without a process group."""
    return dist.get_rank() if is_distributed() else 0


def get_world_size() -> int:
    """Return the number of processes, 1 without a process group."""
    return dist.get_world_size() if is_distributed() else 1


def all_reduce_sum(value: Tensor) -> Tensor:
    """Return the sum of a tensor over all processes.  Collective: every process must call it."""
    total = value.clone()
    if is_distributed():
        dist.all_reduce(total)
    return total
