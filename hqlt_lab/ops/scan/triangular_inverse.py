"""Inverse of a unit lower triangular matrix, by substitution in small blocks and products between them.

With diagonal blocks D_J of the matrix and its inverse computed block row by block row,

    inverse[J, J] = D_J^{-1}        inverse[J, <J] = - D_J^{-1} (matrix[J, <J] inverse[<J, <J])

Doubling powers of the strictly lower part instead would overflow for repeated keys with epsilon = 2, which is the case
of parity: they reach 1e20, although the inverse itself is small.
"""

import torch
from torch import Tensor

from hqlt_lab.ops.scan.scratch_buffers import Buffers

BLOCK_SIZE = 16


def invert_unit_triangular(matrix: Tensor, buffers: Buffers) -> Tensor:
    """Return the inverse [R, L, L] of I + the strictly lower part of `matrix`, in a buffer."""
    size = matrix.shape[1]
    if size <= BLOCK_SIZE:
        return substitute(matrix, buffers)
    inverse = buffers.zeros("inverse", matrix, tuple(matrix.shape))
    for start, block in zip(range(0, size, BLOCK_SIZE), invert_diagonal_blocks(matrix, buffers), strict=True):
        stop = start + block.shape[1]
        inverse[:, start:stop, start:stop] = block
        if start:
            coupling = torch.bmm(matrix[:, start:stop, :start], inverse[:, :start, :start])
            inverse[:, start:stop, :start] = torch.bmm(block, coupling).neg_()
    return inverse


def invert_diagonal_blocks(matrix: Tensor, buffers: Buffers) -> list[Tensor]:
    """Return the inverses of the diagonal blocks.  The whole blocks are inverted in one batch."""
    rows, size, _ = matrix.shape
    count = size // BLOCK_SIZE
    whole_blocks = matrix[:, : count * BLOCK_SIZE, : count * BLOCK_SIZE]
    tiles = whole_blocks.unflatten(2, (count, -1)).unflatten(1, (count, -1))
    blocks = tiles.diagonal(dim1=1, dim2=3)  # [R, b, b, count]
    batch = buffers.get_buffer("diagonal_blocks", matrix, (rows, count, BLOCK_SIZE, BLOCK_SIZE))
    batch.copy_(blocks.permute(0, 3, 1, 2))
    inverses = list(substitute(batch.flatten(0, 1), buffers).unflatten(0, (rows, count)).unbind(1))
    last_block = matrix[:, count * BLOCK_SIZE :, count * BLOCK_SIZE :]
    return [*inverses, substitute(last_block, buffers)] if last_block.shape[1] else inverses


def substitute(matrix: Tensor, buffers: Buffers) -> Tensor:
    """Return the inverse by substitution against the identity."""
    return torch.linalg.solve_triangular(matrix, buffers.eye(matrix), upper=False, unitriangular=True)


def count_inverse_products(size: int) -> int:
    """Return the multiply-adds of the products between blocks."""
    starts = range(BLOCK_SIZE, size, BLOCK_SIZE)
    return sum(rows * start * (start + rows) for start in starts for rows in [min(BLOCK_SIZE, size - start)])
