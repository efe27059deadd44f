"""Cumulative sums that are reproducible on a GPU.

    y_i = x_1 + ... + x_i

On a GPU torch.cumsum adds floating-point numbers in an order that can differ between calls, so it raises under
`trainer.deterministic`.  In that case the sums are computed as products with a triangular matrix of ones, block by
block.  The offset of a block is the cumulative sum of the totals of the blocks before it, computed the same way:

    y = x U + (cumulative sum of the totals of earlier blocks)                      U_ji = 1 for j <= i, else 0

The products are in float64, which neither autocast nor TF32 affects.  A value that is not finite also affects earlier
values of its block, whereas torch.cumsum affects only later ones.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK_SIZE = 64


def deterministic_cumsum(x: Tensor, dim: int) -> Tensor:
    """Return the cumulative sums along `dim`, in the dtype of x; reproducible if torch is set to be deterministic."""
    order_varies = x.is_cuda and x.is_floating_point()
    return matmul_cumsum(x, dim) if order_varies and torch.are_deterministic_algorithms_enabled() else x.cumsum(dim)


def matmul_cumsum(x: Tensor, dim: int) -> Tensor:
    """Return the cumulative sums along `dim`, always added in the same order."""
    return blockwise_cumsum(x.movedim(dim, -1).double()).movedim(-1, dim).to(x.dtype)


def blockwise_cumsum(x: Tensor) -> Tensor:
    """Return the cumulative sums along the last dimension of a float64 tensor, by matrix products."""
    length = x.shape[-1]
    size = min(length, BLOCK_SIZE)
    ones = x.new_ones(size, size).triu()
    if length <= BLOCK_SIZE:
        return x @ ones
    within_block = F.pad(x, (0, -length % BLOCK_SIZE)).unflatten(-1, (-1, BLOCK_SIZE)) @ ones  # [.., N, BLOCK]
    offset = F.pad(blockwise_cumsum(within_block[..., :-1, -1]), (1, 0))  # [.., N]
    return (within_block + offset[..., None]).flatten(-2)[..., :length]
