"""One chunk of a linear memory, forwards and backwards, as products of small matrices.

A chunk that starts from S, with keys k, values v, and `Fading`'s factors written as e^.., has

    N u + e^g k S           what the memory recalls for each key: `recalled`      N_ij = e^{g_i - g_j} k_i . k_j,  j < i
    u = omega v - epsilon recalled                                                what is written: `new`
    q: e^then q S + A u                                                           what is read     A_ij = e^{then_i - g_j} q_i . k_j
    S' = e^{g_L} S + (e^{g_L - g} k)^T u                                          the state after the chunk

u stands on both sides of the first two lines: (I + epsilon N) u = omega v - epsilon e^g k S, a triangular system that
is solved by substitution, once, against the identity: products do the rest, here and backwards.  (Its inverse by
doubling powers overflows for repeated keys with epsilon = 2, which is parity itself.)

Backwards, with y = (I + epsilon N)^{-T} du,

    d omega = y . v       d epsilon = - y . recalled       dv = omega y       dN = - epsilon y u^T       dS = .. - (e^g k)^T epsilon y

All that is large is computed in buffers that are used again for the next chunk, so that they stay in the cache.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from hqlt_lab.ops.fading import Fading, to_log_keeps


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
    """What solving it gave: backwards it is needed again."""

    recalled: Tensor  # [R, L, V]
    inverse: Tensor  # [R, L, L]


class Gradients(NamedTuple):
    """Of one chunk's inputs."""

    q: Tensor
    k: Tensor
    v: Tensor
    erase: Tensor | None
    write: Tensor | None
    fade: tuple[Tensor, Tensor, Tensor] | None  # by g [R, L], then [R, C], g_L [R]


class Buffers(dict[tuple[str, torch.Size], Tensor]):
    """Memory by name and shape, the same for every chunk."""

    def of(self, name: str, like: Tensor, *shape: int) -> Tensor:
        key = (name, torch.Size(shape))
        if key not in self:
            self[key] = like.new_empty(shape)
        return self[key]

    def bmm(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        return torch.bmm(a, b, out=self.of(name, a, a.shape[0], a.shape[1], b.shape[2]))

    def mul(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        return torch.mul(a, b, out=self.of(name, a, *a.shape))


def solve(chunk: Chunk, state: Tensor | None, buffers: Buffers) -> tuple[Tensor, Solved | None]:
    """What the chunk writes."""
    _, k, v, erase, write, fading, _ = chunk
    if erase is None:
        return (v if write is None else buffers.mul("new", v, write)), None
    among = overlaps(chunk, buffers)
    system = buffers.mul("system", among, erase)
    eye = torch.eye(k.shape[1], dtype=k.dtype, device=k.device).expand_as(system)
    inverse = torch.linalg.solve_triangular(system, eye, upper=False, unitriangular=True)
    if state is None:
        recalled = buffers.of("recalled", v, *v.shape).zero_()
    else:
        recalled = scaled(buffers.bmm("recalled", k, state), fading.to_write)
    new = buffers.bmm("new", inverse, written(chunk, recalled, buffers))
    return new, Solved(recalled.baddbmm_(among, new), inverse)


def written(chunk: Chunk, recalled: Tensor, buffers: Buffers) -> Tensor:
    """omega v - epsilon recalled."""
    assert chunk.erase is not None
    target = buffers.of("target", chunk.v, *chunk.v.shape)
    if chunk.write is chunk.erase:
        return torch.sub(chunk.v, recalled, out=target).mul_(chunk.erase)
    full = chunk.v if chunk.write is None else buffers.mul("full", chunk.v, chunk.write)
    return torch.addcmul(full, recalled, chunk.erase, value=-1, out=target)


def overlaps(chunk: Chunk, buffers: Buffers) -> Tensor:
    """N: how much write i overlaps with what is left of write j < i."""
    return scaled(buffers.bmm("among", chunk.k, chunk.k.mT), chunk.fading.among).tril_(-1)


def attention(chunk: Chunk, buffers: Buffers) -> Tensor:
    """A: how much token i reads of write j."""
    products = buffers.bmm("attention", chunk.q, chunk.k.mT)
    return products.tril_() if chunk.fading.reads is None else products.mul_(chunk.fading.reads)


def read(chunk: Chunk, state: Tensor | None, new: Tensor, buffers: Buffers) -> Tensor:
    """What each token reads [R, C, V]: of the state before the chunk, and of what it wrote."""
    if state is None:
        if chunk.inside:
            return buffers.bmm("reads", attention(chunk, buffers), new)
        return buffers.of("reads", new, *chunk.q.shape[:2], new.shape[2]).zero_()
    reads = scaled(buffers.bmm("reads", chunk.q, state), chunk.fading.to_read)
    return reads.baddbmm_(attention(chunk, buffers), new) if chunk.inside else reads


def carry(chunk: Chunk, state: Tensor | None, new: Tensor, buffers: Buffers, out: Tensor) -> Tensor:
    """The state after the chunk, into `out`."""
    keys = chunk.k if chunk.fading.leaving is None else buffers.mul("leaving", chunk.k, chunk.fading.leaving)
    if state is None:
        return torch.bmm(keys.mT, new, out=out)
    if chunk.fading.keep is None:
        return torch.baddbmm(state, keys.mT, new, out=out)
    return torch.mul(state, chunk.fading.keep, out=out).baddbmm_(keys.mT, new)


def backward(
    chunk: Chunk,
    solved: Solved | None,
    state: Tensor | None,
    held: Tensor | None,
    by_reads: Tensor,
    by_state: Tensor | None,
    buffers: Buffers,
) -> tuple[Gradients, Tensor | None, Tensor | None]:
    """Gradients of the inputs, of the state before the chunk, and of the state that was read (`held`)."""
    q, k, v, erase, write, fading, inside = chunk
    fade: tuple[Tensor, Tensor, Tensor] | None = None
    if fading.fades:
        fade = (k.new_zeros(k.shape[:2]), q.new_zeros(q.shape[:2]), q.new_zeros(len(q)))
    new = v if write is None else buffers.mul("new", v, write)
    if solved is not None:
        new = written(chunk, solved.recalled, buffers)

    # what was read of the state
    by_held = None
    if held is None:
        by_q = buffers.of("by_q", q, *q.shape).zero_()
    else:
        by_q = scaled(buffers.bmm("by_q", by_reads, held.mT), fading.to_read)
        by_held = buffers.bmm("by_held", scaled(q, fading.to_read, buffers, "q").mT, by_reads)
        if fade is not None:
            fade[1].add_(dots(by_q, q, buffers))

    # what was left for the next chunk
    if by_state is None:
        by_k = buffers.of("by_k", k, *k.shape).zero_()
        by_new = buffers.of("by_new", v, *v.shape).zero_()
    else:
        by_k = scaled(buffers.bmm("by_k", new, by_state.mT), fading.leaving)
        by_new = scaled(buffers.bmm("by_new", k, by_state), fading.leaving)
        if fade is not None:
            left = dots(by_k, k, buffers)
            fade[0].sub_(left)
            fade[2].add_(left.sum(1))

    # what was read of the chunk itself
    if inside:
        products = attention(chunk, buffers)
        by_new.baddbmm_(products.mT, by_reads)
        by_products = buffers.bmm("by_products", by_reads, new.mT)
        if fade is not None:
            both = buffers.mul("both", by_products, products)
            fade[1].add_(both.sum(2))
            fade[0].sub_(both.sum(1))
        by_products = by_products.tril_() if fading.reads is None else by_products.mul_(fading.reads)
        by_q.baddbmm_(by_products, k)
        by_k.baddbmm_(by_products.mT, q)

    # the state before, as far as it was kept
    by_before = None
    if by_state is not None and state is not None:
        by_before = by_state
        if fading.keep is not None:
            by_before.mul_(fading.keep)
            if fade is not None:
                fade[2].add_(buffers.mul("kept", by_before, state).sum((1, 2)))
    elif state is not None:
        by_before = torch.zeros_like(state)

    if solved is None or erase is None:
        by_write = None if write is None else dots(by_new, v, buffers)
        by_v = by_new if write is None else by_new.mul_(write)
        return Gradients(by_q, by_k, by_v, None, by_write, fade), by_before, by_held

    by_solution = buffers.bmm("by_solution", solved.inverse.mT, by_new)  # y
    by_erase = dots(by_solution, solved.recalled, buffers).neg_()
    by_write = None if write is None else dots(by_solution, v, buffers)
    erasing = buffers.mul("erasing", by_solution, erase)
    by_among = scaled(buffers.bmm("by_among", erasing, new.mT), fading.among).tril_(-1)  # - dN, as it acts on k k^T
    by_k.baddbmm_(torch.add(by_among, by_among.mT, out=buffers.of("both ways", by_among, *by_among.shape)), k, alpha=-1)
    if fade is not None:
        both = by_among.mul_(buffers.bmm("among", k, k.mT)).neg_()
        fade[0].add_(both.sum(2)).sub_(both.sum(1))
    if state is not None and by_before is not None:
        if fading.to_write is None:
            by_k.baddbmm_(erasing, state.mT, alpha=-1)
            by_before.baddbmm_(k.mT, erasing, alpha=-1)
        else:
            looked_up = buffers.bmm("looked up", erasing, state.mT).mul_(fading.to_write).neg_()
            by_k.add_(looked_up)
            by_before.baddbmm_(buffers.mul("k", k, fading.to_write).mT, erasing, alpha=-1)
            if fade is not None:
                fade[0].add_(dots(looked_up, k, buffers))
    by_v = erasing if write is erase else by_solution if write is None else by_solution.mul_(write)
    return Gradients(by_q, by_k, by_v, by_erase, by_write, fade), by_before, by_held


def scaled(x: Tensor, factor: Tensor | None, buffers: Buffers | None = None, name: str = "") -> Tensor:
    """x times the factor: in place, or in a buffer of that name; x itself where there is no factor."""
    if factor is None:
        return x
    return x.mul_(factor) if buffers is None else buffers.mul(name, x, factor)


def dots(a: Tensor, b: Tensor, buffers: Buffers) -> Tensor:
    """Row by row the product of two [R, n, d].  [R, n]."""
    return buffers.mul("dots", a, b).sum(-1)


__all__ = ["Buffers", "Chunk", "Gradients", "Solved", "backward", "carry", "read", "solve", "to_log_keeps"]
