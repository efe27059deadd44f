"""What several processes know together; alone, one knows everything."""

import os

import torch.distributed as dist
from torch import Tensor

RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID")


def first() -> bool:
    """Whether this is the only process of a run or the first one, as told by whoever started it."""
    return all(os.environ.get(name, "0") == "0" for name in RANKS)


def together() -> bool:
    """Whether there are other processes to talk to."""
    return dist.is_available() and dist.is_initialized()


def rank() -> int:
    """Which process this is."""
    return dist.get_rank() if together() else 0


def world() -> int:
    """How many there are."""
    return dist.get_world_size() if together() else 1


def summed(value: Tensor) -> Tensor:
    """The sum over all processes; all of them must ask."""
    total = value.clone()
    if together():
        dist.all_reduce(total)
    return total
