"""One chunk of a linear memory, as products of small matrices.

A chunk that starts from S, with the factors of `fading` written as e^.., has

    recalled = e^g k S + N u              what the memory knows of each key     N_ij = e^{g_i - g_j} k_i . k_j,  j < i
    u = omega v - epsilon recalled        what is written: `new`
    reads = e^then q S + A u                                                    A_ij = e^{then_i - g_j} q_i . k_j
    S' = e^{g_L} S + (e^{g_L - g} k)^T u

The first two lines are one triangular system, (I + epsilon N) u = omega v - epsilon e^g k S.  It is solved by
substitution, once, against the identity: products do the rest, here and backwards.  (Its inverse by doubling powers
overflows for repeated keys with epsilon = 2, which is parity itself.)

What is large is computed in buffers that every chunk uses again, so that they stay in the processor's cache.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from hqlt_lab.ops.fading import Fading


class Chunk(NamedTuple):
    """What goes through the memory, for R rows: C tokens, L writes."""

    q: Tensor  # [R, C, K]
    k: Tensor  # [R, L, K]
    v: Tensor  # [R, L, V]
    erase: Tensor | None  # [R, L, 1]
    write: Tensor | None  # [R, L, 1]; the same object as `erase` where they are one
    fading: Fading
    inside: bool  # whether tokens read the writes of their own chunk


class Solved(NamedTuple):
    """What solving it gave, and what is needed of that again backwards."""

    recalled: Tensor  # [R, L, V]
    inverse: Tensor  # [R, L, L]


class Buffers(dict[tuple[str, tuple[int, ...]], Tensor]):
    """Memory by name and shape, the same for every chunk."""

    def of(self, name: str, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        key = (name, shape)
        if key not in self:
            self[key] = like.new_empty(shape)
        return self[key]

    def bmm(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        return torch.bmm(a, b, out=self.of(name, a, (a.shape[0], a.shape[1], b.shape[2])))

    def mul(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        return torch.mul(a, b, out=self.of(name, a, tuple(a.shape)))

    def scaled(self, name: str, x: Tensor, factor: Tensor | None) -> Tensor:
        """x itself where there is no factor."""
        return x if factor is None else self.mul(name, x, factor)

    def zeros(self, name: str, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        return self.of(name, like, shape).zero_()

    def eye(self, like: Tensor) -> Tensor:
        key = ("eye", tuple(like.shape))
        if key not in self:
            self[key] = torch.eye(like.shape[1], dtype=like.dtype, device=like.device).expand_as(like)
        return self[key]


def scale_(x: Tensor, factor: Tensor | None) -> Tensor:
    """In place; x as it is where there is no factor."""
    return x if factor is None else x.mul_(factor)


def solve(chunk: Chunk, state: Tensor | None, buffers: Buffers) -> tuple[Tensor, Solved | None]:
    """What the chunk writes [R, L, V]; with nothing to erase there is nothing to solve."""
    if chunk.erase is None:
        return buffers.scaled("new", chunk.v, chunk.write), None
    among = overlaps(chunk, buffers)
    system = buffers.mul("system", among, chunk.erase)
    inverse = torch.linalg.solve_triangular(system, buffers.eye(system), upper=False, unitriangular=True)
    if state is None:
        recalled = buffers.zeros("recalled", chunk.v, tuple(chunk.v.shape))
    else:
        recalled = scale_(buffers.bmm("recalled", chunk.k, state), chunk.fading.to_write)
    new = buffers.bmm("new", inverse, written(chunk, recalled, buffers))
    return new, Solved(recalled.baddbmm_(among, new), inverse)


def written(chunk: Chunk, recalled: Tensor, buffers: Buffers) -> Tensor:
    """omega v - epsilon recalled."""
    assert chunk.erase is not None
    target = buffers.of("target", chunk.v, tuple(chunk.v.shape))
    if chunk.write is chunk.erase:
        return torch.sub(chunk.v, recalled, out=target).mul_(chunk.erase)
    full = buffers.scaled("full", chunk.v, chunk.write)
    return torch.addcmul(full, recalled, chunk.erase, value=-1, out=target)


def overlaps(chunk: Chunk, buffers: Buffers) -> Tensor:
    """N [R, L, L]."""
    return scale_(buffers.bmm("among", chunk.k, chunk.k.mT), chunk.fading.among).tril_(-1)


def attention(chunk: Chunk, buffers: Buffers) -> Tensor:
    """A [R, C, L]."""
    return seen_(chunk, buffers.bmm("attention", chunk.q, chunk.k.mT))


def seen_(chunk: Chunk, products: Tensor) -> Tensor:
    """Products [R, C, L] of tokens and writes, as far as the tokens see the writes; in place."""
    products = scale_(products, chunk.fading.reads)
    return products.tril_() if products.shape[1] == products.shape[2] else products


def read(chunk: Chunk, state: Tensor | None, new: Tensor, buffers: Buffers) -> Tensor:
    """What each token reads [R, C, V]: of the state (None: an empty one), and of what its chunk wrote."""
    if state is None:
        reads = buffers.zeros("reads", new, (*chunk.q.shape[:2], new.shape[2]))
    else:
        reads = scale_(buffers.bmm("reads", chunk.q, state), chunk.fading.to_read)
    return reads.baddbmm_(attention(chunk, buffers), new) if chunk.inside else reads


def carry(chunk: Chunk, state: Tensor | None, new: Tensor, buffers: Buffers, out: Tensor) -> None:
    """The state after the chunk [R, K, V], into `out`."""
    keys = buffers.scaled("leaving", chunk.k, chunk.fading.leaving).mT
    if state is None:
        torch.bmm(keys, new, out=out)
    elif chunk.fading.keep is None:
        torch.baddbmm(state, keys, new, out=out)
    else:
        torch.mul(state, chunk.fading.keep, out=out).baddbmm_(keys, new)
