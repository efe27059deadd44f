"""One chunk of a linear memory whose gates are one number per head, forward and backward, as matrix products.

A chunk that starts from the state S, with the decay factors of `decay` written as powers of e, computes

    recalled = e^g k S + N u              what the memory holds for each key    N_ij = e^{g_i - g_j} k_i . k_j,  j < i
    u = omega v - epsilon recalled        what is written: the new values
    reads = e^r q S + A u                                                       A_ij = e^{r_i - g_j} q_i . k_j
    S' = e^{g_L} S + (e^{g_L - g} k)^T u

The first two lines are one triangular system, (I + epsilon N) u = omega v - epsilon e^g k S.  Its matrix is inverted
once (`triangular_inverse`); the inverse is then used in products, forward and backward.

Large intermediate results are written to buffers that all chunks share, so that they stay in the CPU cache.

Backward, from the gradients of the reads and of the final state S' to those of all inputs: with du the gradient of the
new values and y = (I + epsilon N)^{-T} du,

    du = A^T dreads + e^{g_L - g} k dS'
    d omega = y . v        d epsilon = - y . recalled        dv = omega y
    dq = e^r dreads S^T + dA k                                                     dA = dreads u^T
    dk = dA^T q + e^{g_L - g} u dS'^T + dN^T k                  as stored key      dN = - epsilon y u^T
         + dN k - e^g epsilon y S^T                             as lookup key      dA and dN with their factors
    dS = e^{g_L} dS' + (e^r q)^T dreads - (e^g k)^T epsilon y

The log-keep of write i scales what was stored before i and is read, looked up or carried on at i or later.  Each such
pair contributes its own term of the loss's derivative, a product that appears above (`DecayTerms`):

    d log_keep_i = sum over j < i <= x of the terms of (stored by write j, used at x)

where j is a write of the chunk or the state S, and x a token, a write or the end of the chunk.  `log_keep_grad` adds
them up.  The shorter identity q . dq - k . dk has the same sum, but in it pairs that have not decayed appear with both
signs: where keeps are small, their rounding errors exceed the gradient.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from hqlt_lab.ops.scan.chunk_decay import ChunkDecay, DecayTerms
from hqlt_lab.ops.scan.scratch_buffers import Buffers, scale_optional_
from hqlt_lab.ops.scan.triangular_inverse import invert_unit_triangular


class Chunk(NamedTuple):
    """The inputs of one chunk, for R rows: C tokens, L writes."""

    q: Tensor  # [R, C, K]
    k: Tensor  # [R, L, K]
    v: Tensor  # [R, L, V]
    erase: Tensor | None  # [R, L, 1]
    write: Tensor | None  # [R, L, 1]; the same tensor object as `erase` if the gates are tied
    decay: ChunkDecay
    intra_chunk: bool  # whether tokens read the writes of their own chunk


class SolvedChunk(NamedTuple):
    """Results of solving the triangular system that the backward pass needs."""

    recalled_values: Tensor  # [R, L, V]
    inverse: Tensor  # [R, L, L]


def solve_chunk(chunk: Chunk, state: Tensor | None, buffers: Buffers) -> tuple[Tensor, SolvedChunk | None]:
    """Return the new values [R, L, V] and, for a rule that erases, the solved system."""
    if chunk.erase is None:
        return buffers.scale_into("new_values", chunk.v, chunk.write), None
    overlaps = key_overlaps(chunk, buffers)
    system = buffers.mul("system", overlaps, chunk.erase)
    inverse = invert_unit_triangular(system, buffers)
    if state is None:
        recalled = buffers.zeros("recalled", chunk.v, tuple(chunk.v.shape))
    else:
        recalled = scale_optional_(buffers.bmm("recalled", chunk.k, state), chunk.decay.state_to_write)
    new_values = buffers.bmm("new_values", inverse, compute_write_targets(chunk, recalled, buffers))
    return new_values, SolvedChunk(recalled.baddbmm_(overlaps, new_values), inverse)


def compute_write_targets(chunk: Chunk, recalled_values: Tensor, buffers: Buffers) -> Tensor:
    """Return omega v - epsilon recalled."""
    assert chunk.erase is not None
    target = buffers.get_buffer("target", chunk.v, tuple(chunk.v.shape))
    if chunk.write is chunk.erase:
        return torch.sub(chunk.v, recalled_values, out=target).mul_(chunk.erase)
    scaled_values = buffers.scale_into("scaled_values", chunk.v, chunk.write)
    return torch.addcmul(scaled_values, recalled_values, chunk.erase, value=-1, out=target)


def key_overlaps(chunk: Chunk, buffers: Buffers) -> Tensor:
    """Return N [R, L, L]: decayed products of each key with the earlier keys."""
    return scale_optional_(buffers.bmm("overlaps", chunk.k, chunk.k.mT), chunk.decay.write_to_write).tril_(-1)


def chunk_attention(chunk: Chunk, buffers: Buffers) -> Tensor:
    """Return A [R, C, L]: decayed products of each query with the keys of the writes that it sees."""
    return apply_read_decay_(chunk, buffers.bmm("attention", chunk.q, chunk.k.mT))


def apply_read_decay_(chunk: Chunk, products: Tensor) -> Tensor:
    """Apply decay and visibility to products [R, C, L] of tokens and writes, in place."""
    products = scale_optional_(products, chunk.decay.write_to_read)
    return products.tril_() if products.shape[1] == products.shape[2] else products


def read_chunk(chunk: Chunk, state: Tensor | None, new_values: Tensor, buffers: Buffers) -> Tensor:
    """Return the reads [R, C, V] from the state (None: empty) and from the writes of the chunk."""
    if state is None:
        reads = buffers.zeros("reads", new_values, (*chunk.q.shape[:2], new_values.shape[2]))
    else:
        reads = scale_optional_(buffers.bmm("reads", chunk.q, state), chunk.decay.state_to_read)
    return reads.baddbmm_(chunk_attention(chunk, buffers), new_values) if chunk.intra_chunk else reads


def carry_state(chunk: Chunk, state: Tensor | None, new_values: Tensor, buffers: Buffers, out: Tensor) -> None:
    """Write the final state of the chunk [R, K, V] to `out`."""
    keys = buffers.scale_into("decayed_keys", chunk.k, chunk.decay.write_to_end).mT
    if state is None:
        torch.bmm(keys, new_values, out=out)
    elif chunk.decay.state_to_end is None:
        torch.baddbmm(state, keys, new_values, out=out)
    else:
        torch.mul(state, chunk.decay.state_to_end, out=out).baddbmm_(keys, new_values)


class ChunkStates(NamedTuple):
    """The states that a chunk uses [R, K, V].  None is an empty state."""

    initial_state: Tensor | None
    read_state: Tensor | None  # the state that the tokens read


class ChunkBackward:
    """Gradients of one chunk.  They lie in the shared buffers, so they are valid until the next chunk."""

    def __init__(
        self, chunk: Chunk, solved: SolvedChunk | None, states: ChunkStates, has_decay: bool, buffers: Buffers
    ) -> None:
        self.chunk, self.solved, self.states, self.buffers, self.has_decay = chunk, solved, states, buffers, has_decay
        self.new_values = buffers.scale_into("new_values", chunk.v, chunk.write)
        if solved is not None:
            self.new_values = compute_write_targets(chunk, solved.recalled_values, buffers)
        self.grad_erase: Tensor | None = None
        self.grad_write: Tensor | None = None
        self.decay_terms = DecayTerms()

    def compute_grads(self, grad_reads: Tensor, grad_final_state: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """Return the gradients of the initial state and of the state that was read.

        Overwrites `grad_final_state`.
        """
        grad_read_state = self.backprop_state_read(grad_reads)
        self.backprop_state_update(grad_final_state)
        if self.chunk.intra_chunk:
            self.backprop_intra_chunk_read(grad_reads)
        grad_initial_state = self.decay_state_grad(grad_final_state)
        self.backprop_solve(grad_initial_state)
        return grad_initial_state, grad_read_state

    def backprop_state_read(self, grad_reads: Tensor) -> Tensor | None:
        q, decay, read_state = self.chunk.q, self.chunk.decay.state_to_read, self.states.read_state
        if read_state is None:
            self.grad_q = self.buffers.zeros("grad_q", q, tuple(q.shape))
            return None
        self.grad_q = scale_optional_(self.buffers.bmm("grad_q", grad_reads, read_state.mT), decay)
        if self.has_decay and self.chunk.intra_chunk:  # a state that is held for longer than a chunk does not decay
            self.decay_terms = self.decay_terms._replace(state_to_read=self.row_dots(self.grad_q, q))
        return self.buffers.bmm("grad_read_state", self.buffers.scale_into("decayed_queries", q, decay).mT, grad_reads)

    def backprop_state_update(self, grad_final_state: Tensor | None) -> None:
        k, v, decay = self.chunk.k, self.chunk.v, self.chunk.decay.write_to_end
        if grad_final_state is None:
            self.grad_k = self.buffers.zeros("grad_k", k, tuple(k.shape))
            self.grad_new_values = self.buffers.zeros("grad_new_values", v, tuple(v.shape))
        else:
            self.grad_k = scale_optional_(self.buffers.bmm("grad_k", self.new_values, grad_final_state.mT), decay)
            self.grad_new_values = scale_optional_(self.buffers.bmm("grad_new_values", k, grad_final_state), decay)
            if self.has_decay:
                self.decay_terms = self.decay_terms._replace(write_to_end=self.row_dots(self.grad_k, k))

    def backprop_intra_chunk_read(self, grad_reads: Tensor) -> None:
        attention = chunk_attention(self.chunk, self.buffers)
        self.grad_new_values.baddbmm_(attention.mT, grad_reads)
        grad_products = self.buffers.bmm("grad_products", grad_reads, self.new_values.mT)
        if self.has_decay:
            self.decay_terms = self.decay_terms._replace(write_to_read=attention.mul_(grad_products))
        grad_products = apply_read_decay_(self.chunk, grad_products)
        self.grad_q.baddbmm_(grad_products, self.chunk.k)
        self.grad_k.baddbmm_(grad_products.mT, self.chunk.q)

    def decay_state_grad(self, grad_final_state: Tensor | None) -> Tensor | None:
        initial_state = self.states.initial_state
        if initial_state is None:
            return None
        if grad_final_state is None:
            return torch.zeros_like(initial_state)
        grad_initial_state = scale_optional_(grad_final_state, self.chunk.decay.state_to_end)
        if self.has_decay:
            state_to_end = self.buffers.mul("end_products", grad_initial_state, initial_state).sum((1, 2))
            self.decay_terms = self.decay_terms._replace(state_to_end=state_to_end)
        return grad_initial_state

    def backprop_solve(self, grad_initial_state: Tensor | None) -> None:
        v, erase, write = self.chunk.v, self.chunk.erase, self.chunk.write
        if self.solved is None or erase is None:
            self.grad_write = None if write is None else self.row_dots(self.grad_new_values, v)
            self.grad_v = scale_optional_(self.grad_new_values, write)
            return
        solution = self.buffers.bmm("solution", self.solved.inverse.mT, self.grad_new_values)  # y
        self.grad_erase = self.row_dots(solution, self.solved.recalled_values).neg_()
        self.grad_write = None if write is None else self.row_dots(solution, v)
        scaled_solution = self.buffers.mul("scaled_solution", solution, erase)  # epsilon y
        self.grad_v = scaled_solution if write is erase else scale_optional_(solution, write)
        self.backprop_lookup(scaled_solution, grad_initial_state)

    def backprop_lookup(self, scaled_solution: Tensor, grad_initial_state: Tensor | None) -> None:
        """Subtract the gradient of the looked-up values from `grad_k` and from the gradient of the initial state."""
        k, decay, initial_state = self.chunk.k, self.chunk.decay, self.states.initial_state
        grad_overlaps = self.buffers.bmm("grad_overlaps", scaled_solution, self.new_values.mT)
        grad_overlaps = scale_optional_(grad_overlaps, decay.write_to_write).tril_(-1)  # - dN
        self.grad_k.baddbmm_(grad_overlaps.mT, k, alpha=-1)
        self.grad_k.baddbmm_(grad_overlaps, k, alpha=-1)
        if initial_state is not None and grad_initial_state is not None:
            scaled_solution = self.buffers.scale_into("decayed_solution", scaled_solution, decay.state_to_write)
            grad_initial_state.baddbmm_(k.mT, scaled_solution, alpha=-1)
            grad_state_lookup = self.buffers.bmm("grad_state_lookup", scaled_solution, initial_state.mT)
            self.grad_k.sub_(grad_state_lookup)
            if self.has_decay:
                state_to_write = self.row_dots(grad_state_lookup, k).neg_()
                self.decay_terms = self.decay_terms._replace(state_to_write=state_to_write)
        if self.has_decay:
            products = self.buffers.bmm("overlaps", k, k.mT)
            self.decay_terms = self.decay_terms._replace(write_to_write=products.mul_(grad_overlaps).neg_())

    def row_dots(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the dot products of the rows of two tensors [R, n, d].  [R, n]."""
        return self.buffers.mul("dots", a, b).sum(-1)
