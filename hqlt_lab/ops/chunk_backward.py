"""One chunk backwards: from gradients of its reads and of the state after it to those of all that went in.

In the letters of `chunk`, with du the gradient of what was written and y = (I + epsilon N)^{-T} du,

    du = A^T dreads + e^{g_L - g} k dS'
    d omega = y . v        d epsilon = - y . recalled        dv = omega y
    dq = e^then dreads S^T + dA k                                                  dA = dreads u^T
    dk = dA^T q + e^{g_L - g} u dS'^T + dN^T k                  as what is stored  dN = - epsilon y u^T
         + dN k - e^g epsilon y S^T                             as what looks up   dA and dN with their factors
    dS = e^{g_L} dS' + (e^then q)^T dreads - (e^g k)^T epsilon y

Sums of log-keeps only scale: e^then all that q reads, e^g what k looks up, e^-g what it stores, e^{g_L} all of S'.  So

    d then = q . dq        dg = k . (dk as what looks up - dk as what is stored)        dg_L = S' . dS'
"""

from typing import NamedTuple

import torch
from torch import Tensor

from hqlt_lab.ops.chunk import Buffers, Chunk, Solved, attention, scale_, seen_, written


class States(NamedTuple):
    """The states around a chunk [R, K, V]; None is an empty one."""

    before: Tensor | None
    after: Tensor
    held: Tensor | None  # the one that was read


class Fade(NamedTuple):
    """Gradients by the sums of the log-keeps."""

    by_write: Tensor  # g [R, L]
    by_token: Tensor | None  # then [R, C]
    by_end: Tensor | None  # g_L [R]


class Backward:
    """Gradients of one chunk, paragraph by paragraph; they lie in the buffers until the next chunk."""

    def __init__(self, chunk: Chunk, solved: Solved | None, states: States, fades: bool, buffers: Buffers) -> None:
        self.chunk, self.solved, self.states, self.buffers, self.fades = chunk, solved, states, buffers, fades
        self.new = buffers.scaled("new", chunk.v, chunk.write)
        if solved is not None:
            self.new = written(chunk, solved.recalled, buffers)
        self.by_erase: Tensor | None = None
        self.by_write: Tensor | None = None
        self.fade: Fade | None = None

    def run(self, by_reads: Tensor, by_after: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """Gradients of the state before the chunk (`by_after`, changed) and of the one it read."""
        by_end = None
        if self.fades and by_after is not None:
            by_end = self.buffers.mul("end", by_after, self.states.after).sum((1, 2))
        by_held = self.read_of_the_state(by_reads)
        self.left_for_the_next(by_after)
        if self.chunk.inside:
            self.read_of_the_chunk(by_reads)
        by_before = self.kept_of_the_state(by_after)
        looking_up = self.solve(by_before)
        if self.fades:
            self.scale(looking_up, by_end)
        return by_before, by_held

    def read_of_the_state(self, by_reads: Tensor) -> Tensor | None:
        q, to_read, held = self.chunk.q, self.chunk.fading.to_read, self.states.held
        if held is None:
            self.by_q = self.buffers.zeros("by_q", q, tuple(q.shape))
            return None
        self.by_q = scale_(self.buffers.bmm("by_q", by_reads, held.mT), to_read)
        return self.buffers.bmm("by_held", self.buffers.scaled("q", q, to_read).mT, by_reads)

    def left_for_the_next(self, by_after: Tensor | None) -> None:
        k, v, leaving = self.chunk.k, self.chunk.v, self.chunk.fading.leaving
        if by_after is None:
            self.by_k = self.buffers.zeros("by_k", k, tuple(k.shape))
            self.by_new = self.buffers.zeros("by_new", v, tuple(v.shape))
        else:
            self.by_k = scale_(self.buffers.bmm("by_k", self.new, by_after.mT), leaving)
            self.by_new = scale_(self.buffers.bmm("by_new", k, by_after), leaving)

    def read_of_the_chunk(self, by_reads: Tensor) -> None:
        self.by_new.baddbmm_(attention(self.chunk, self.buffers).mT, by_reads)
        by_products = seen_(self.chunk, self.buffers.bmm("by_products", by_reads, self.new.mT))
        self.by_q.baddbmm_(by_products, self.chunk.k)
        self.by_k.baddbmm_(by_products.mT, self.chunk.q)

    def kept_of_the_state(self, by_after: Tensor | None) -> Tensor | None:
        if self.states.before is None:
            return None
        return torch.zeros_like(self.states.before) if by_after is None else scale_(by_after, self.chunk.fading.keep)

    def solve(self, by_before: Tensor | None) -> Tensor | None:
        """The gradient of k as what looks up, apart from the other where keeps need it; None where nothing is."""
        v, erase, write = self.chunk.v, self.chunk.erase, self.chunk.write
        if self.solved is None or erase is None:
            self.by_write = None if write is None else self.dots(self.by_new, v)
            self.by_v = scale_(self.by_new, write)
            return None
        solution = self.buffers.bmm("solution", self.solved.inverse.mT, self.by_new)  # y
        self.by_erase = self.dots(solution, self.solved.recalled).neg_()
        self.by_write = None if write is None else self.dots(solution, v)
        erasing = self.buffers.mul("erasing", solution, erase)
        self.by_v = erasing if write is erase else scale_(solution, write)
        return self.look_up(erasing, by_before)

    def look_up(self, erasing: Tensor, by_before: Tensor | None) -> Tensor:
        k, fading, before = self.chunk.k, self.chunk.fading, self.states.before
        looking_up = self.buffers.zeros("looking_up", k, tuple(k.shape)) if self.fades else self.by_k
        by_among = scale_(self.buffers.bmm("by_among", erasing, self.new.mT), fading.among).tril_(-1)  # - dN
        self.by_k.baddbmm_(by_among.mT, k, alpha=-1)
        looking_up.baddbmm_(by_among, k, alpha=-1)
        if before is not None and by_before is not None:
            erasing = self.buffers.scaled("looked_up", erasing, fading.to_write)
            looking_up.baddbmm_(erasing, before.mT, alpha=-1)
            by_before.baddbmm_(k.mT, erasing, alpha=-1)
        return looking_up

    def scale(self, looking_up: Tensor | None, by_end: Tensor | None) -> None:
        """By what scales q, k and the state; a state that is held does not fade."""
        by_write = self.dots(self.by_k, self.chunk.k).neg_()
        if looking_up is not None:
            by_write.add_(self.dots(looking_up, self.chunk.k))
            self.by_k.add_(looking_up)
        self.fade = Fade(by_write, self.dots(self.by_q, self.chunk.q) if self.chunk.inside else None, by_end)

    def dots(self, a: Tensor, b: Tensor) -> Tensor:
        """Row by row the product of two [R, n, d].  [R, n]."""
        return self.buffers.mul("dots", a, b).sum(-1)
