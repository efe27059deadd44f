"""State of a layer: what it carries from one call to the next.

Shape and content depend only on the tokens of the current document, not on how they arrived: at once, in chunks, token
by token, padded, or after other documents.  Per head it has the S (K + V) + K V numbers of the paper, plus cached
gates, a normalizer, the inputs of the convolutions, sums of forget gates and sinks where the composition needs them.
Gates that a rule returns as one tensor, such as erase = write = beta, are stored once.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.model.batch_layout import TokenPositions
from hqlt_lab.ops.gates import GateTuple, OptionalTensor, concat_gates, map_gates


class CachedTokens(NamedTuple):
    """Consecutive tokens, the latest last: key and value of each write, and gates if they are needed later.

    Keys are stored without positions, as the fast weights need them; softmax applies positions on each read.
    """

    k: Tensor  # [B, G, T * writes, K]
    v: Tensor  # [B, G, T * writes, V]
    gates: GateTuple | None = None  # named tuple of [B, H, T * writes, ...]

    def prepend_tokens(self, earlier: "CachedTokens | None") -> "CachedTokens":
        """Return the tokens with earlier ones in front; None: there are none."""
        if earlier is None:
            return self
        gates = None
        if self.gates is not None and earlier.gates is not None:
            gates = concat_gates(earlier.gates, self.gates)
        return CachedTokens(torch.cat([earlier.k, self.k], 2), torch.cat([earlier.v, self.v], 2), gates)

    def last_writes(self, length: int, offset: int = 0) -> "CachedTokens":
        """Return `length` writes that end `offset` writes before the latest, with zeros where there are none."""
        k, v = take_last(self.k, length, offset), take_last(self.v, length, offset)
        return CachedTokens(
            k, v, None if self.gates is None else map_gates(lambda gate: take_last(gate, length, offset), self.gates)
        )

    def keep_last_tokens(self, capacity: int, token_positions: TokenPositions, writes: int) -> "CachedTokens":
        """Return the last `capacity` tokens of each row's document, which the next call needs."""

        def keep_last(u: Tensor) -> Tensor:
            return keep_last_tokens(u, capacity, token_positions, writes)

        gates = None if self.gates is None else map_gates(keep_last, self.gates)
        return CachedTokens(keep_last(self.k), keep_last(self.v), gates)


class SoftmaxTokens(NamedTuple):
    """Tokens that softmax reads: key and value, and what the attention component and forget gates need of each."""

    k: Tensor  # [B, G, S, K]
    v: Tensor  # [B, G, S, V]
    features: OptionalTensor  # [B, H, S, F]
    decay: OptionalTensor  # [B, H, S] float64: sums of log forget gates

    def append_tokens(self, later: "SoftmaxTokens") -> "SoftmaxTokens":
        pairs = zip(self, later, strict=True)
        k, v, features, decay = (None if u is None or w is None else torch.cat([u, w], 2) for u, w in pairs)
        assert k is not None and v is not None
        return SoftmaxTokens(k, v, features, decay)


class AttentionState(NamedTuple):
    """State of softmax in addition to the KV cache.  A field is None if it is not needed."""

    features: OptionalTensor  # [B, H, S, F] of the cached tokens
    decay: OptionalTensor  # [B, H, S] sums of log forget gates since the document's first token
    sinks: SoftmaxTokens | None  # the first tokens of the document


class MemoryState(NamedTuple):
    """State of one layer.  A field is None if the composition does not need it."""

    document_length: Tensor  # [B] tokens of each row's current document so far
    kv_cache: CachedTokens | None  # tokens that softmax can still see or that are not yet in the fast weights
    fw: Tensor | None  # [B, H, K, V] the fast weights
    conv: tuple[Tensor, ...] | None  # the latest inputs of the convolutions on q, k, v
    attention: AttentionState | None = None  # what softmax needs beside the keys and values in the cache
    # tokens that are not yet in the fast weights, if these have keys and values of their own
    fw_cache: CachedTokens | None = None


State = tuple[MemoryState, ...]  # state of a model, layer by layer


def select_rows(state: State, rows: Tensor) -> State:
    """Return the state of these rows, given as indices [N] into the batch: reordered, dropped or repeated."""
    if not isinstance(rows, Tensor) or rows.dim() != 1:
        raise ValueError("rows: a tensor [N] of row numbers is needed, such as torch.tensor([1, 0]).")
    return _index_tree(state, rows, {})


def check_state(x: Tensor, state: Any, layers: int) -> None:
    """Raise ValueError unless this is a state of a model with that many layers, for as many rows as x [B, ...] has."""
    if state is None:
        return
    if not isinstance(state, tuple) or not all(isinstance(layer, MemoryState) for layer in state):
        raise ValueError(f"state: the state returned by the model is needed, got {type(state).__name__}.")
    if len(state) != layers:
        raise ValueError(f"state: it belongs to a model with {len(state)} layers, but this model has {layers}.")
    if (rows := len(state[0].document_length)) != len(x):
        raise ValueError(f"state: it has {rows} rows, but the input has {len(x)}. See select_rows.")


def _index_tree(tree: Any, rows: Tensor, indexed: dict[int, Tensor]) -> Any:
    """Index all tensors of nested tuples by their first dimension.

    `indexed` holds the results by the id of the tensor: gates that are one tensor stay one tensor.
    """
    if isinstance(tree, Tensor):
        if id(tree) not in indexed:
            indexed[id(tree)] = tree[rows]
        return indexed[id(tree)]
    if not isinstance(tree, tuple):
        return tree
    branches = [_index_tree(branch, rows, indexed) for branch in tree]
    return type(tree)(*branches) if hasattr(tree, "_fields") else tuple(branches)


def take_last(x: Tensor, length: int, offset: int = 0) -> Tensor:
    """Return `length` elements of dimension 2 that end `offset` before its end, padded with zeros at the front."""
    end = max(x.shape[2] - offset, 0)
    last = x[:, :, max(end - length, 0) : end]
    missing = length - last.shape[2]
    return last if missing == 0 else F.pad(last, [0, 0] * (x.dim() - 3) + [missing, 0])


def repeat_groups(u: Tensor, heads: int) -> Tensor:
    """Return keys or values [B, G, T, K] for each head [B, H, T, K]: consecutive heads share those of a group."""
    return u if u.shape[1] == heads else u.repeat_interleave(heads // u.shape[1], 1)


def gather_tokens(u: Tensor, index: Tensor, writes: int = 1) -> Tensor:
    """Gather tokens along dimension 2: row b of the result holds the tokens index[b] of u, in that order."""
    index = (index[:, :, None] * writes + torch.arange(writes, device=u.device)).flatten(1)  # [B, T * writes]
    index = index.reshape(len(index), 1, -1, *[1] * (u.dim() - 3))
    return u.gather(2, index.expand(len(u), u.shape[1], -1, *u.shape[3:]))


def keep_last_tokens(u: Tensor, capacity: int, token_positions: TokenPositions, writes: int = 1) -> Tensor:
    """Return the last `capacity` tokens of each row's document along dimension 2, zeros where it has fewer.

    The result is a copy: a view would keep the whole sequence in memory.
    """
    if token_positions.is_uniform:
        return take_last(u, capacity * writes).clone()
    padding: Tensor | int = 0
    if token_positions.row_length is not None:
        padding = token_positions.position.shape[1] - token_positions.row_length[:, None]  # [B, 1]
    offset = torch.arange(-capacity, 0, device=u.device).expand(len(u), -1)  # [B, capacity]
    tokens = gather_tokens(u, (u.shape[2] // writes - padding + offset).clamp(min=0), writes)
    missing = (token_positions.document_length[:, None] + offset < 0).repeat_interleave(writes, 1)
    return tokens.masked_fill(missing.reshape(len(u), 1, -1, *[1] * (u.dim() - 3)), 0.0)
