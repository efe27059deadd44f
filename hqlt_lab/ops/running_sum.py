"""Running sums that can be asked to come out the same every time.

    y_i = x_1 + ... + x_i

On a GPU, torch.cumsum adds floating-point numbers in an order that may differ from call to call, and so it raises where
`trainer.deterministic` asks for operations that repeat.  There the sums are products with a triangular matrix of ones,
inside blocks, and what came before a block is the running sum of the blocks' totals, found in the same way:

    y = x U + (running sum of the totals of earlier blocks)                         U_ji = 1 for j <= i, else 0

The products are in float64, which neither autocast nor TF32 lowers.  A number that is not finite spoils its block, also
what comes before it: cumsum would spoil only what comes after.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 64


def running_sum(x: Tensor, dim: int) -> Tensor:
    """The sums along `dim`, in the dtype of x."""
    in_any_order = x.is_cuda and x.is_floating_point()
    return by_products(x, dim) if in_any_order and torch.are_deterministic_algorithms_enabled() else x.cumsum(dim)


def by_products(x: Tensor, dim: int) -> Tensor:
    """The same, always added in the same order."""
    return in_blocks(x.movedim(dim, -1).double()).movedim(-1, dim).to(x.dtype)


def in_blocks(x: Tensor) -> Tensor:
    """Along the last dimension of a float64."""
    length = x.shape[-1]
    size = min(length, BLOCK)
    ones = x.new_ones(size, size).triu()
    if length <= BLOCK:
        return x @ ones
    inside = F.pad(x, (0, -length % BLOCK)).unflatten(-1, (-1, BLOCK)) @ ones  # [.., N, BLOCK]
    before = F.pad(in_blocks(inside[..., :-1, -1]), (1, 0))  # [.., N]
    return (inside + before[..., None]).flatten(-2)[..., :length]
