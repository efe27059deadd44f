"""One chunk backwards: from gradients of its reads and of the state after it to those of all that went in.

In the letters of `chunk`, with du the gradient of what was written and y = (I + epsilon N)^{-T} du,

    du = A^T dreads + e^{g_L - g} k dS'
    d omega = y . v        d epsilon = - y . recalled        dv = omega y        dN = - epsilon y u^T
    dq = e^then dreads S^T + dA k                                                dA = dreads u^T
    dk = e^{g_L - g} u dS'^T + dA^T q + (dN + dN^T) k - e^g epsilon y S^T        dA and dN with their factors
    dS = e^{g_L} dS' + (e^then q)^T dreads - (e^g k)^T epsilon y

A factor e^x gets, as a gradient by x, the product of what it scales and that one's gradient.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from hqlt_lab.ops.chunk import Buffers, Chunk, Solved, attention, scale_, seen_, written


class Fade(NamedTuple):
    """Gradients by the sums of the log-keeps."""

    by_write: Tensor  # g [R, L]
    by_token: Tensor  # then [R, C]
    by_end: Tensor  # g_L [R]


class Backward:
    """Gradients of one chunk, paragraph by paragraph; they lie in the buffers until the next chunk."""

    def __init__(self, chunk: Chunk, solved: Solved | None, fades: bool, buffers: Buffers) -> None:
        self.chunk, self.solved, self.buffers = chunk, solved, buffers
        q, k, v = chunk.q, chunk.k, chunk.v
        self.fade = Fade(k.new_zeros(k.shape[:2]), q.new_zeros(q.shape[:2]), q.new_zeros(len(q))) if fades else None
        self.new = buffers.scaled("new", v, chunk.write) if solved is None else written(chunk, solved.recalled, buffers)
        self.by_erase: Tensor | None = None
        self.by_write: Tensor | None = None

    def run(
        self, state: Tensor | None, held: Tensor | None, by_reads: Tensor, by_after: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Gradients of the state before the chunk (`by_after`, changed) and of the one it read, `held`."""
        by_held = self.read_of_the_state(held, by_reads)
        self.left_for_the_next(by_after)
        if self.chunk.inside:
            self.read_of_the_chunk(by_reads)
        by_before = self.kept_of_the_state(state, by_after)
        self.solve(state, by_before)
        return by_before, by_held

    def read_of_the_state(self, held: Tensor | None, by_reads: Tensor) -> Tensor | None:
        q, to_read = self.chunk.q, self.chunk.fading.to_read
        if held is None:
            self.by_q = self.buffers.zeros("by_q", q, tuple(q.shape))
            return None
        self.by_q = scale_(self.buffers.bmm("by_q", by_reads, held.mT), to_read)
        if self.fade is not None:
            self.fade.by_token.add_(self.dots(self.by_q, q))
        return self.buffers.bmm("by_held", self.buffers.scaled("q", q, to_read).mT, by_reads)

    def left_for_the_next(self, by_after: Tensor | None) -> None:
        k, v, leaving = self.chunk.k, self.chunk.v, self.chunk.fading.leaving
        if by_after is None:
            self.by_k = self.buffers.zeros("by_k", k, tuple(k.shape))
            self.by_new = self.buffers.zeros("by_new", v, tuple(v.shape))
            return
        self.by_k = scale_(self.buffers.bmm("by_k", self.new, by_after.mT), leaving)
        self.by_new = scale_(self.buffers.bmm("by_new", k, by_after), leaving)
        if self.fade is not None:
            left = self.dots(self.by_k, k)
            self.fade.by_write.sub_(left)
            self.fade.by_end.add_(left.sum(1))

    def read_of_the_chunk(self, by_reads: Tensor) -> None:
        products = attention(self.chunk, self.buffers)
        self.by_new.baddbmm_(products.mT, by_reads)
        by_products = self.buffers.bmm("by_products", by_reads, self.new.mT)
        if self.fade is not None:
            both = self.buffers.mul("both", by_products, products)
            self.fade.by_token.add_(both.sum(2))
            self.fade.by_write.sub_(both.sum(1))
        seen_(self.chunk, by_products)
        self.by_q.baddbmm_(by_products, self.chunk.k)
        self.by_k.baddbmm_(by_products.mT, self.chunk.q)

    def kept_of_the_state(self, state: Tensor | None, by_after: Tensor | None) -> Tensor | None:
        if state is None:
            return None
        if by_after is None:
            return torch.zeros_like(state)
        scale_(by_after, self.chunk.fading.keep)
        if self.fade is not None:
            self.fade.by_end.add_(self.buffers.mul("kept", by_after, state).sum((1, 2)))
        return by_after

    def solve(self, state: Tensor | None, by_before: Tensor | None) -> None:
        _, _, v, erase, write, _, _ = self.chunk
        if self.solved is None or erase is None:
            self.by_write = None if write is None else self.dots(self.by_new, v)
            self.by_v = scale_(self.by_new, write)
            return
        solution = self.buffers.bmm("solution", self.solved.inverse.mT, self.by_new)  # y
        self.by_erase = self.dots(solution, self.solved.recalled).neg_()
        self.by_write = None if write is None else self.dots(solution, v)
        erasing = self.buffers.mul("erasing", solution, erase)
        self.recalled_of_the_chunk(erasing)
        if state is not None and by_before is not None:
            self.recalled_of_the_state(erasing, state, by_before)
        self.by_v = erasing if write is erase else scale_(solution, write)

    def recalled_of_the_chunk(self, erasing: Tensor) -> None:
        k, among = self.chunk.k, self.chunk.fading.among
        by_among = scale_(self.buffers.bmm("by_among", erasing, self.new.mT), among).tril_(-1)  # - dN
        both_ways = self.buffers.of("both_ways", by_among, tuple(by_among.shape))
        self.by_k.baddbmm_(torch.add(by_among, by_among.mT, out=both_ways), k, alpha=-1)
        if self.fade is not None:
            both = by_among.mul_(self.buffers.bmm("among", k, k.mT))
            self.fade.by_write.sub_(both.sum(2)).add_(both.sum(1))

    def recalled_of_the_state(self, erasing: Tensor, state: Tensor, by_before: Tensor) -> None:
        k, to_write = self.chunk.k, self.chunk.fading.to_write
        by_before.baddbmm_(self.buffers.scaled("k", k, to_write).mT, erasing, alpha=-1)
        if self.fade is None and to_write is None:
            self.by_k.baddbmm_(erasing, state.mT, alpha=-1)
            return
        looked_up = scale_(self.buffers.bmm("looked_up", erasing, state.mT), to_write)
        self.by_k.sub_(looked_up)
        if self.fade is not None:
            self.fade.by_write.sub_(self.dots(looked_up, k))

    def dots(self, a: Tensor, b: Tensor) -> Tensor:
        """Row by row the product of two [R, n, d].  [R, n]."""
        return self.buffers.mul("dots", a, b).sum(-1)
