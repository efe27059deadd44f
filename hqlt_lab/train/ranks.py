"""What several processes know together; alone, one knows everything."""

import torch.distributed as dist
from torch import Tensor


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
