"""One chunk of the general linear memory, with a decay per key channel and a lookup key of its own.

    S_i = D_i S_{i-1} + k_i (u_i - l_i)^T       D_i = diag(e^{g_i}), one log-keep per key channel
    l_i = S_{i-1}^T D_i p_i, or S_{i-1}^T p_i   what is looked up under p_i: after the decay, or before it (`early`)

Let G_i be the sum of the chunk's log-keeps up to write i.  Queries and lookup keys are *rows*: a row sees the first n
writes of the chunk and reads at write x,

    query of token t    n = the writes that t sees    x = n - 1
    lookup of write i   n = i                         x = i, or i - 1 if it is early

and a write j < n that it sees has decayed by e^{G_x - G_j} in every key channel.  With the matrices A (rows of queries)
and N (rows of lookup keys), both of entries sum_d row_d k_jd e^{G_xd - G_jd}, a chunk that starts from the state S is

    (I + N) new = u - (p e^{G_x}) S        reads = (q e^{G_x}) S + A new        S' = e^{G_L} S + (k e^{G_L - G})^T new

**Blocks.**  The decay of a pair cannot be taken out of the sum over channels, and e^{-G_j} alone overflows.  The chunk
is therefore cut into blocks of c writes.  Row r belongs to a block J that contains write n - 1, and R_J is G at the
start of the block.  With F = e^{G - R_J}, the only exponential,

    writes before the block     (row F_x) . (k_j e^{R_J - G_j})     both factors are at most 1: computed in float32
    writes of the block         (row F_x) . (k_j / F_j)             computed in float64, whose range suffices

Log-keeps are limited so that those of a block sum to -640 at least: for blocks of 16 a keep is at least 4e-18.

**Gradient of the log-keeps.**  G only scales: what a row finds is proportional to e^{G_x}, what write j stores to
e^{-G_j}, and the final state to e^{G_L}.  Hence, per channel and with dx the gradient of x,

    dG_x += row * drow      dG_j -= k_j * dk_j      dG_L += sum over values of S' * dS'      dg_i = sum_{j >= i} dG_j

A pair that has not decayed (x = j, or writes j + 1 to x do not decay) would appear with both signs.  Its rounding error
would exceed the gradient where keeps are small, so these pairs are left out of the identity
(`BlockLayout.undecayed_pairs`).  Of several writes of a token, often only the first decays.
"""

from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.ops.scan.deterministic_cumsum import deterministic_cumsum
from hqlt_lab.ops.scan.scratch_buffers import Buffers
from hqlt_lab.ops.scan.triangular_inverse import invert_unit_triangular

BLOCK_SIZE = 16  # writes per block
MIN_BLOCK_LOG_KEEP = -640.0  # e^640 and its reciprocal are float64 numbers


class UndecayedPairs(NamedTuple):
    """Pairs of a row and a write that it sees, each [P]."""

    rows: Tensor  # counted over all blocks
    writes: Tensor
    positions: Tensor  # the write at which the row reads


class BlockLayout:
    """How the rows of a chunk belong to its blocks.

    A block has `query_rows` rows of queries, then `lookup_rows` rows of lookup keys.  Without `hold`, the queries of a
    block are those of its tokens.  With `hold`, every block has a row for every token, and `query_mask` selects one.
    """

    def __init__(
        self, tokens: int, writes: int, hold: int | None, intra_chunk: bool, lookup_stride: int, early: bool
    ) -> None:
        """Describe a chunk of `tokens` tokens with `writes` writes each.

        intra_chunk    whether tokens read the writes of the chunk
        lookup_stride  1: every write looks up; `writes`: the first write of each token; 0: none
        early          whether lookups come before the decay
        """
        self.tokens, self.writes, self.hold, self.early, self.lookup_stride = tokens, writes, hold, early, lookup_stride
        self.block_size = max(BLOCK_SIZE // writes, 1) * writes
        self.num_writes = tokens * writes
        self.num_blocks = -(-self.num_writes // self.block_size)
        self.padded_writes = self.num_blocks * self.block_size
        self.padded_tokens = self.padded_writes // writes
        self.lookup_rows = self.block_size // lookup_stride if lookup_stride else 0
        self.query_mask: Tensor | None = None  # [blocks, tokens, 1]
        block_tokens = self.block_size // writes
        if not intra_chunk:
            self.query_rows, last_seen = 0, torch.zeros(self.num_blocks, 0, dtype=torch.long)
        elif hold is None:
            self.query_rows = block_tokens
            last_seen = ((torch.arange(block_tokens) + 1) * writes - 1).expand(self.num_blocks, -1)
        else:
            self.query_rows = tokens
            seen_writes = torch.arange(tokens) // hold * hold * writes
            block = (seen_writes - 1).clamp(min=0) // self.block_size
            in_block = block == torch.arange(self.num_blocks)[:, None]
            self.query_mask = in_block[..., None]
            last_seen = torch.where(in_block, seen_writes - 1 - block * self.block_size, -1)
        self.last_seen = last_seen  # [blocks, query_rows]: the last write of the block that each query sees, or -1
        self.rows = self.query_rows + self.lookup_rows

    def to_device(self, device: torch.device) -> "BlockLayout":
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value.to(device))
        return self

    @cached_property
    def hidden(self) -> Tensor:
        """[blocks or 1, rows, block_size]: True for the writes of its block that a row does not see."""
        position = torch.arange(self.block_size, device=self.last_seen.device)
        queries = position > self.last_seen[..., None]
        queries = queries[:1] if self.query_mask is None else queries
        lookups = position >= position[:: self.lookup_stride or 1, None]
        if not self.lookup_stride:
            return queries
        return torch.cat([queries, lookups.expand(len(queries), -1, -1)], 1)

    @cached_property
    def undecayed_pairs(self) -> "UndecayedPairs":
        """The pairs of a row and a write of the token that it reads last, between which there may be no decay.

        The pairs of queries without `hold`, each with the last write of its token, are left out: they are regular.
        """
        device = self.last_seen.device
        block = torch.arange(self.num_blocks, device=device)[:, None]
        empty = torch.zeros(0, dtype=torch.long, device=device)
        rows, positions, first_steps_back = [empty], [empty], [empty]

        def add_rows(row: Tensor, position: Tensor, first_step_back: int) -> None:
            rows.append(row)
            positions.append(position)
            first_steps_back.append(torch.full_like(row, first_step_back))

        if self.query_rows:
            sees = self.last_seen >= 0
            query_row = block * self.rows + torch.arange(self.query_rows, device=device)
            position = block * self.block_size + self.last_seen
            add_rows(query_row[sees], position[sees], 1 if self.has_regular_queries else 0)
        if self.lookup_stride:
            lookup_row = (block * self.rows + self.query_rows + torch.arange(self.lookup_rows, device=device)).flatten()
            position = torch.arange(0, self.padded_writes, self.lookup_stride, device=device)
            if self.early:
                add_rows(lookup_row[1:], position[1:] - 1, 0)
            else:
                add_rows(lookup_row, position, 1)
        position = torch.cat(positions)[:, None]
        steps_back = torch.arange(self.writes, device=device)
        write = position - steps_back
        is_pair = write >= position // self.writes * self.writes  # of the same token
        is_pair &= steps_back >= torch.cat(first_steps_back)[:, None]
        return UndecayedPairs(*(x.expand_as(write)[is_pair] for x in (torch.cat(rows)[:, None], write, position)))

    @property
    def has_regular_queries(self) -> bool:
        """Whether the queries of a block are those of its tokens, each of which sees its own writes."""
        return self.query_mask is None and self.query_rows > 0

    def query_factors(self, decay: Tensor) -> Tensor:
        """Return e^{G_x - R_J} of the query rows [R, blocks, query_rows, K] from F [R, blocks, block_size, K]."""
        if self.query_mask is None:
            return decay[:, :, self.writes - 1 :: self.writes][:, :, : self.query_rows]
        block = torch.arange(self.num_blocks, device=decay.device)[:, None]
        return F.pad(decay, (0, 0, 1, 0), value=1.0)[:, block, self.last_seen + 1]

    def split_queries(self, x: Tensor) -> Tensor:
        """Arrange [R, tokens, ..] as the query rows of the blocks [R, blocks, query_rows, ..]."""
        if self.query_mask is not None:
            return x[:, None] * self.query_mask
        if not self.query_rows:
            return x.new_empty(len(x), self.num_blocks, 0, x.shape[2])
        return pad_steps(x, self.padded_tokens).unflatten(1, (self.num_blocks, self.query_rows))

    def join_queries(self, x: Tensor) -> Tensor:
        """Return [R, tokens, ..] from the query rows of the blocks: the inverse of `split_queries`."""
        if self.query_mask is not None:
            return (x * self.query_mask).sum(1)
        return x.flatten(1, 2)[:, : self.tokens]


def pad_steps(x: Tensor, length: int) -> Tensor:
    """Pad x [R, n, ..] with zeros to `length` steps."""
    return x if x.shape[1] == length else F.pad(x, (0, 0, 0, length - x.shape[1]))


class ChunkDocuments:
    """Masks of one chunk with several documents.  A document of number 0 began before the chunk."""

    def __init__(self, doc_start: Tensor, layout: BlockLayout, dtype: torch.dtype) -> None:
        """Compute the masks from doc_start [R, tokens]."""
        token_document = doc_start.long().cumsum(1)
        last = token_document[:, -1:]
        write_document = token_document.repeat_interleave(layout.writes, 1)
        write_document = torch.cat([write_document, last.expand(-1, layout.padded_writes - layout.num_writes)], 1)
        if layout.query_mask is not None:
            rows = token_document[:, None].expand(-1, layout.num_blocks, -1)
        else:
            rows = write_document[:, :: layout.writes].unflatten(1, (layout.num_blocks, -1))[:, :, : layout.query_rows]
        if layout.lookup_stride:
            lookups = write_document[:, :: layout.lookup_stride].unflatten(1, (layout.num_blocks, -1))
            rows = torch.cat([rows, lookups], 2)
        self.same_document = rows[..., None] == write_document[:, None, None]  # [R, blocks, rows, writes]
        self.row_continues = (rows == 0).to(dtype)[..., None]  # [R, blocks, rows, 1]
        self.write_remains = (write_document == last).to(dtype)[..., None]  # [R, writes, 1]
        self.state_remains = (last == 0).to(dtype)[..., None]  # [R, 1, 1]


class ChannelGateInputs(NamedTuple):
    """The inputs of one chunk for R rows of the batch, padded to whole blocks."""

    q: Tensor  # [R, blocks, query_rows, K]
    k: Tensor  # [R, blocks, block_size, K]
    lookup: Tensor | None  # [R, blocks, lookup_rows, K]
    log_keep: Tensor  # [R, blocks, block_size, K]


class ChannelGateChunk:
    """The scaled rows and keys of one chunk, and the products of rows and keys."""

    def __init__(
        self, inputs: ChannelGateInputs, layout: BlockLayout, documents: ChunkDocuments | None, buffers: Buffers
    ) -> None:
        self.inputs, self.layout, self.documents, self.buffers = inputs, layout, documents, buffers
        q, k, lookup, log_keep = inputs
        blocks, queries = layout.num_blocks, layout.query_rows
        self.batch, self.channels = k.shape[0], k.shape[3]
        block_shape, row_shape = tuple(k.shape), (self.batch, blocks, layout.rows, self.channels)
        limited = self.wide_buffer("log_decay", block_shape).copy_(log_keep).clamp_(min=self.min_log_keep)
        self.decay = deterministic_cumsum(limited, 2).exp_()  # F
        self.query_factors = layout.query_factors(self.decay)
        self.rows = self.wide_buffer("rows", row_shape)  # row F_x
        self.rows[:, :, :queries].copy_(q).mul_(self.query_factors)
        if lookup is not None:
            self.rows[:, :, queries:].copy_(lookup)
            self.scale_lookups_(self.rows)
        self.keys = self.wide_buffer("keys", block_shape).copy_(k).div_(self.decay)  # k / F
        block_decay = self.decay[:, :, -1:]
        self.narrow_rows = buffers.get_buffer("narrow_rows", k, row_shape).copy_(self.rows)
        keys_at_end = torch.mul(self.keys, block_decay, out=self.wide_buffer("keys_at_end", block_shape))
        self.keys_at_end = buffers.get_buffer("narrow_keys_at_end", k, block_shape).copy_(keys_at_end)
        # decay of each block [R, blocks, 1, K], and of the initial state until each block [R, blocks + 1, 1, K]
        self.block_decay = buffers.get_buffer("block_decay", k, tuple(block_decay.shape)).copy_(block_decay)
        self.state_decay = F.pad(block_decay.cumprod(1), (0, 0, 0, 0, 1, 0), value=1.0).to(k.dtype)
        self.state_rows = buffers.mul("state_rows", self.narrow_rows, self.state_decay[:, :-1])  # row e^{G_x}
        self.state_to_end = self.state_decay[:, -1, 0, :, None]  # [R, K, 1]
        if documents is not None:
            self.state_rows.mul_(documents.row_continues)
            self.state_to_end = self.state_to_end * documents.state_remains

    @property
    def min_log_keep(self) -> float:
        """The smallest log-keep that is not limited."""
        return MIN_BLOCK_LOG_KEEP / self.layout.block_size

    def wide_buffer(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return self.buffers.get_buffer(name, self.inputs.k, shape, torch.float64)

    def scale_lookups_(self, rows: Tensor) -> None:
        """Multiply the lookup rows of [R, blocks, rows, K] by e^{G_x - R_J}."""
        stride, first = self.layout.lookup_stride, self.layout.query_rows
        if self.layout.early:  # the first row of a block reads at the start of the block
            rows[:, :, first + 1 :].mul_(self.decay[:, :, stride - 1 : -1 : stride])
        else:
            rows[:, :, first:].mul_(self.decay[:, :, ::stride])

    def overlaps(self, num_rows: int) -> Tensor:
        """Return A and N of the first `num_rows` rows of each block [R, blocks, num_rows, writes].

        Also computes `moved_keys`, the keys decayed until the end of each block, and `keys_to_end`.
        """
        layout, buffers, batch = self.layout, self.buffers, self.batch
        blocks, size = layout.num_blocks, layout.block_size
        products = self.wide_buffer("block_products", (batch * blocks, layout.rows, size))
        torch.bmm(self.rows.flatten(0, 1), self.keys.flatten(0, 1).mT, out=products)
        products = products.view(batch, blocks, layout.rows, size).masked_fill_(layout.hidden, 0.0)
        overlaps = buffers.zeros("overlaps", self.inputs.k, (batch, blocks, num_rows, blocks * size))
        diagonal = overlaps.view(batch, blocks, num_rows, blocks, size).diagonal(dim1=1, dim2=3)
        diagonal.copy_(products[:, :, :num_rows].permute(0, 2, 3, 1))
        self.moved_keys: list[
            Tensor
        ] = []  # per block J: the keys of the blocks 0..J at the end of block J [R, J + 1, size, K]
        for block in range(blocks):
            moved = buffers.get_buffer(f"moved_keys_{block}", self.inputs.k, (batch, block + 1, size, self.channels))
            if block:
                torch.mul(self.moved_keys[-1], self.block_decay[:, block : block + 1], out=moved[:, :block])
            moved[:, block].copy_(self.keys_at_end[:, block])
            self.moved_keys.append(moved)
            if block + 1 < blocks:
                past = buffers.bmm("past_products", self.narrow_rows[:, block + 1, :num_rows], moved.flatten(1, 2).mT)
                overlaps[:, block + 1, :, : (block + 1) * size].copy_(past)
        self.keys_to_end = self.moved_keys[-1].flatten(1, 2)  # [R, writes, K]
        if self.documents is not None:
            self.keys_to_end = self.keys_to_end * self.documents.write_remains
            overlaps.mul_(self.documents.same_document[:, :, :num_rows])
        return overlaps


class SolvedChannelGateChunk(NamedTuple):
    """Results of the forward pass of a chunk.  They lie in the shared buffers."""

    reads: Tensor  # [R, blocks, query_rows, V]
    new_values: Tensor  # [R, writes, V]
    inverse: Tensor | None  # [R, lookups, lookups]


def channel_gate_chunk_forward(
    chunk: ChannelGateChunk, values: Tensor, state: Tensor, final_state: Tensor
) -> SolvedChannelGateChunk:
    """Compute one chunk from its values u [R, writes, V] and initial state [R, K, V], and write its final state."""
    layout, buffers, batch, queries = chunk.layout, chunk.buffers, chunk.batch, chunk.layout.query_rows
    blocks, value_dim = layout.num_blocks, values.shape[2]
    overlaps = chunk.overlaps(layout.rows)
    state_reads = buffers.bmm("state_reads", chunk.state_rows.flatten(1, 2), state)
    state_reads = state_reads.view(batch, blocks, layout.rows, value_dim)
    new_values, inverse = values, None
    if layout.lookup_stride:
        lookups = copy_rows(buffers, "lookup_overlaps", overlaps[:, :, queries:])  # N [R, lookups, writes]
        new_values, inverse = solve_lookups(layout, lookups, values, state_reads[:, :, queries:], buffers)
    attention = copy_rows(buffers, "attention", overlaps[:, :, :queries])  # A [R, queries, writes]
    reads = buffers.bmm("reads", attention, new_values).view(batch, blocks, queries, value_dim)
    reads.add_(state_reads[:, :, :queries])
    torch.mul(state, chunk.state_to_end, out=final_state)
    final_state.add_(buffers.bmm("written", chunk.keys_to_end.mT, new_values))
    return SolvedChannelGateChunk(reads, new_values, inverse)


def copy_rows(buffers: Buffers, name: str, x: Tensor) -> Tensor:
    """Copy [R, blocks, n, m] to a contiguous buffer [R, blocks * n, m]."""
    return buffers.get_buffer(name, x, tuple(x.shape)).copy_(x).flatten(1, 2)


def solve_lookups(
    layout: BlockLayout, lookups: Tensor, values: Tensor, state_lookups: Tensor, buffers: Buffers
) -> tuple[Tensor, Tensor]:
    """Return the new values [R, writes, V] and the inverse of I + N [R, lookups, lookups].

    If only the first write of each token looks up, the new values of the others are known: they are their values.
    """
    stride = layout.lookup_stride
    target = buffers.get_buffer("target", values, (len(values), lookups.shape[1], values.shape[2]))
    torch.sub(
        values[:, ::stride].unflatten(1, (layout.num_blocks, -1)), state_lookups, out=target.view_as(state_lookups)
    )
    if stride == 1:
        inverse = invert_unit_triangular(lookups, buffers)
        return buffers.bmm("new_values", inverse, target), inverse
    new_values = buffers.get_buffer("new_values", values, tuple(values.shape)).copy_(values)
    new_values[:, ::stride] = 0.0
    target.sub_(buffers.bmm("known_lookups", lookups, new_values))
    inverse = invert_unit_triangular(lookups[..., ::stride].contiguous(), buffers)
    new_values[:, ::stride] = buffers.bmm("solved_values", inverse, target)
    return new_values, inverse


class ChannelGrads(NamedTuple):
    """Gradients of one chunk.  They lie in the shared buffers."""

    q: Tensor  # [R, blocks, query_rows, K]
    k: Tensor  # [R, writes, K]
    values: Tensor  # [R, writes, V]
    lookup: Tensor | None  # [R, lookups, K]
    log_keep: Tensor  # [R, writes, K]


class ChannelGateChunkBackward:
    """Gradients of one chunk, from those of its reads and of its final state."""

    def __init__(self, chunk: ChannelGateChunk, new_values: Tensor, inverse: Tensor | None, state: Tensor) -> None:
        self.chunk, self.layout, self.buffers = chunk, chunk.layout, chunk.buffers
        self.new_values, self.inverse, self.state = new_values, inverse, state

    def compute_grads(self, grad_reads: Tensor, grad_state: Tensor) -> ChannelGrads:
        """Return the gradients for grad_reads [R, blocks, query_rows, V].

        `grad_state` [R, K, V] is the gradient of the final state, and is changed to that of the initial state.
        """
        chunk, buffers, documents = self.chunk, self.buffers, self.chunk.documents
        row_grads, grad_values = self.backprop_solve(grad_reads, grad_state)
        flat_grads = row_grads.flatten(1, 2)
        # gradients of A and N, of row e^{G_x - R_J} by way of the state, and of the keys at the end of the chunk
        grad_overlaps = buffers.bmm("grad_overlaps", flat_grads, self.new_values.mT)
        grad_rows = buffers.bmm("grad_rows", flat_grads, self.state.mT).view_as(chunk.rows)
        grad_rows.mul_(chunk.state_decay[:, :-1])
        grad_keys = buffers.bmm("grad_keys", self.new_values, grad_state.mT)
        if documents is not None:
            grad_overlaps.view(documents.same_document.shape).mul_(documents.same_document)
            grad_rows.mul_(documents.row_continues)
            grad_keys.mul_(documents.write_remains)
        grad_state.mul_(chunk.state_to_end)
        grad_end = buffers.mul("state_terms", self.state, grad_state).sum(2)  # of G_L [R, K]
        last_keys, grad_last_keys = self.take_last_keys(grad_keys)
        grad_end += buffers.mul("end_terms", chunk.keys_to_end, grad_keys).sum(1)
        grad_state.add_(buffers.bmm("written", chunk.state_rows.flatten(1, 2).mT, flat_grads))
        undecayed = self.take_undecayed_pairs(grad_overlaps)
        grad_rows, grad_keys = self.backprop_overlaps(grad_overlaps, grad_rows, grad_keys)
        grad_log_keep = self.log_keep_grad(grad_rows, grad_keys, grad_end)
        grad_keys[:, last_keys] += grad_last_keys
        self.add_undecayed_pairs(undecayed, grad_rows, grad_keys)
        queries = self.layout.query_rows
        grad_lookup = grad_rows[:, :, queries:].flatten(1, 2) if self.layout.lookup_stride else None
        return ChannelGrads(grad_rows[:, :, :queries], grad_keys, grad_values, grad_lookup, grad_log_keep)

    def backprop_solve(self, grad_reads: Tensor, grad_state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of what the rows found [R, blocks, rows, V], and of the values u [R, writes, V]."""
        layout, buffers, queries = self.layout, self.buffers, self.layout.query_rows
        stride = layout.lookup_stride
        overlaps = self.chunk.overlaps(layout.rows if stride > 1 else queries)
        attention = copy_rows(buffers, "attention", overlaps[:, :, :queries])
        row_shape = (self.chunk.batch, layout.num_blocks, layout.rows, grad_reads.shape[3])
        row_grads = buffers.get_buffer("row_grads", grad_reads, row_shape)
        row_grads[:, :, :queries].copy_(grad_reads)
        grad_new_values = buffers.bmm("grad_new_values", self.chunk.keys_to_end, grad_state)
        grad_new_values.baddbmm_(attention.mT, copy_rows(buffers, "query_grads", grad_reads))
        if self.inverse is None:
            return row_grads, grad_new_values
        solution = buffers.bmm("solution", self.inverse.mT, grad_new_values[:, ::stride])
        torch.neg(solution.unflatten(1, (layout.num_blocks, -1)), out=row_grads[:, :, queries:])
        if stride == 1:
            return row_grads, solution
        lookups = copy_rows(buffers, "lookup_overlaps", overlaps[:, :, queries:])
        grad_new_values.sub_(buffers.bmm("known_grads", lookups.mT, solution))
        grad_new_values[:, ::stride] = solution
        return row_grads, grad_new_values

    @cached_property
    def decay_count(self) -> Tensor | None:
        """[R, writes]: how many writes up to each one decay any channel.  None if tokens have one write each."""
        decays = (self.chunk.inputs.log_keep != 0).any(3).flatten(1, 2)
        return None if self.layout.writes == 1 else decays.cumsum(1)

    def take_last_keys(self, grad_keys: Tensor) -> tuple[slice, Tensor]:
        """Set the gradients of keys that leave the chunk without decay to 0 in [R, writes, K], and return them.

        They are those of the last token, as only padding follows: its last write, and those that no write decays.
        """
        stop, count = self.layout.num_writes, self.decay_count
        last_keys = slice(stop - self.layout.writes, stop)
        grads = grad_keys[:, last_keys].clone()
        if count is not None:
            grads.mul_((count[:, last_keys] == count[:, stop - 1 : stop])[..., None])
        grad_keys[:, last_keys] -= grads
        return last_keys, grads

    def take_undecayed_pairs(self, grad_overlaps: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Set the gradients of undecayed pairs to 0 in [R, blocks * rows, writes], and return them.

        Returns those of regular queries [R, blocks, query_rows], and of other pairs [R, P].
        """
        layout, query_grads, pair_grads = self.layout, None, None
        if layout.has_regular_queries:
            in_block = grad_overlaps.view(len(grad_overlaps), layout.num_blocks, layout.rows, layout.num_blocks, -1)
            in_block = in_block.diagonal(dim1=1, dim2=3)[:, : layout.query_rows, layout.writes - 1 :: layout.writes]
            pairs = in_block.diagonal(dim1=1, dim2=2)
            query_grads = pairs.clone()
            pairs.zero_()
        rows, writes, positions = layout.undecayed_pairs
        if len(rows):
            pair_grads, count = grad_overlaps[:, rows, writes], self.decay_count
            if count is not None:
                pair_grads.mul_(count[:, positions] == count[:, writes])
            grad_overlaps[:, rows, writes] -= pair_grads
        return query_grads, pair_grads

    def add_undecayed_pairs(
        self, undecayed_grads: tuple[Tensor | None, Tensor | None], grad_rows: Tensor, grad_keys: Tensor
    ) -> None:
        """Add the gradients of undecayed pairs, whose overlap is row . k_j."""
        layout, (q, k, lookup, _), (query_grads, pair_grads) = self.layout, self.chunk.inputs, undecayed_grads
        if query_grads is not None:
            own_writes = slice(layout.writes - 1, None, layout.writes)
            grad_rows[:, :, : layout.query_rows].addcmul_(query_grads[..., None], k[:, :, own_writes])
            grad_keys.view_as(k)[:, :, own_writes].addcmul_(query_grads[..., None], q)
        if pair_grads is not None:
            rows, writes, _ = layout.undecayed_pairs
            all_rows = q if lookup is None else torch.cat([q, lookup], 2)
            weight = pair_grads[..., None]
            grad_rows.view(len(k), -1, k.shape[3]).index_add_(1, rows, weight * k.flatten(1, 2)[:, writes])
            grad_keys.index_add_(1, writes, weight * all_rows.flatten(1, 2)[:, rows])

    def backprop_overlaps(self, grad_overlaps: Tensor, grad_rows: Tensor, grad_keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of the rows [R, blocks, rows, K] and of the keys [R, writes, K].

        `grad_rows` holds the gradients by way of the state, and `grad_keys` those by way of the final state.
        """
        chunk, layout, buffers = self.chunk, self.layout, self.buffers
        blocks, size, batch = layout.num_blocks, layout.block_size, chunk.batch
        grad_overlaps = grad_overlaps.view(batch, blocks, layout.rows, blocks * size)
        grad_moved = grad_keys.view(batch, blocks, size, chunk.channels)
        for block in range(blocks - 1, 0, -1):  # grad_moved[:, :block]: the gradients of the keys at the block's start
            past = grad_overlaps[:, block, :, : block * size]
            grad_rows[:, block].add_(buffers.bmm("past_rows", past, chunk.moved_keys[block - 1].flatten(1, 2)))
            past_keys = buffers.bmm("past_keys", past.mT, chunk.narrow_rows[:, block])
            grad_moved[:, :block].mul_(chunk.block_decay[:, block : block + 1])
            grad_moved[:, :block].add_(past_keys.view(batch, block, size, -1))
        products = chunk.wide_buffer("grad_products", (batch, blocks, layout.rows, size))
        diagonal = grad_overlaps.view(batch, blocks, layout.rows, blocks, size).diagonal(dim1=1, dim2=3)
        products.permute(0, 2, 3, 1).copy_(diagonal)
        products = products.masked_fill_(layout.hidden, 0.0).flatten(0, 1)
        wide_rows = chunk.wide_buffer("grad_wide_rows", (batch * blocks, layout.rows, chunk.channels))
        wide_rows = torch.bmm(products, chunk.keys.flatten(0, 1), out=wide_rows).view_as(grad_rows).add_(grad_rows)
        wide_rows[:, :, : layout.query_rows].mul_(chunk.query_factors)
        if layout.lookup_stride:
            chunk.scale_lookups_(wide_rows)
        wide_keys = chunk.wide_buffer("grad_wide_keys", (batch * blocks, size, chunk.channels))
        wide_keys = torch.bmm(products.mT, chunk.rows.flatten(0, 1), out=wide_keys).view_as(grad_moved)
        moved = chunk.wide_buffer("grad_moved", tuple(grad_moved.shape)).copy_(grad_moved).mul_(chunk.decay[:, :, -1:])
        wide_keys.add_(moved).div_(chunk.decay)
        return grad_rows.copy_(wide_rows), grad_moved.copy_(wide_keys).flatten(1, 2)

    def log_keep_grad(self, grad_rows: Tensor, grad_keys: Tensor, grad_end: Tensor) -> Tensor:
        """Return the gradient of the log-keeps [R, writes, K], from gradients without undecayed pairs."""
        layout, buffers, (q, k, lookup, log_keep) = self.layout, self.buffers, self.chunk.inputs
        queries, stride = layout.query_rows, layout.lookup_stride
        grad_sums = buffers.mul("grad_sums", k.flatten(1, 2), grad_keys).neg_()  # of G [R, writes, K]
        query_terms = q * grad_rows[:, :, :queries]
        if layout.query_mask is not None:
            block = torch.arange(layout.num_blocks, device=k.device)[:, None]
            sees = layout.last_seen >= 0
            writes = (block * layout.block_size + layout.last_seen)[sees]
            grad_sums.index_add_(1, writes, query_terms[:, sees])
        elif queries:
            grad_sums[:, layout.writes - 1 :: layout.writes].add_(query_terms.flatten(1, 2))
        if lookup is not None:
            lookup_terms = (lookup * grad_rows[:, :, queries:]).flatten(1, 2)
            if layout.early:
                grad_sums[:, stride - 1 : -1 : stride].add_(lookup_terms[:, 1:])
            else:
                grad_sums[:, ::stride].add_(lookup_terms)
        grad_sums[:, -1].add_(grad_end)
        grad = buffers.bmm("grad_log_keep", buffers.upper_ones(grad_sums), grad_sums)
        if log_keep.amin() < self.chunk.min_log_keep:  # every term of such a gradient contains the limited keep
            grad.mul_((log_keep - log_keep.clamp(min=self.chunk.min_log_keep)).exp().flatten(1, 2))
        return grad
