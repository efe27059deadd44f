"""What one layer remembers between two calls.

Its shape and content depend on the tokens of the current document alone, not on how they arrived: a prompt at once,
in pieces, or token by token, padded, or behind other documents. Per head it is the paper's S (K + V) + K V numbers;
gates that wait, a normaliser and the convolution's inputs come on top.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hqlt_lab.model.layout import Places
from hqlt_lab.ops.steps import each, joined


class Tokens(NamedTuple):
    """Consecutive tokens, the latest last: a raw key and value per write, and gates where these wait or travel.

    Raw, because the fast weights need the key before its position was put on; positions are applied when it is read.
    """

    k: Tensor  # [B, H, T * writes, K]
    v: Tensor  # [B, H, T * writes, V]
    gates: Any = None  # named tuple of [B, H, T * writes]

    def then(self, later: "Tokens") -> "Tokens":
        gates = None if self.gates is None else joined(self.gates, later.gates)
        return Tokens(torch.cat([self.k, later.k], 2), torch.cat([self.v, later.v], 2), gates)

    def last(self, length: int, before: int = 0) -> "Tokens":
        """`length` writes, the last of them `before` writes back from the latest; zeros where there were none yet."""
        k, v = last(self.k, length, before), last(self.v, length, before)
        return Tokens(k, v, None if self.gates is None else each(lambda gate: last(gate, length, before), self.gates))

    def kept(self, room: int, places: Places, writes: int) -> "Tokens":
        """What the next call needs of them."""
        k, v = kept(self.k, room, places, writes), kept(self.v, room, places, writes)
        gates = None if self.gates is None else each(lambda gate: kept(gate, room, places, writes), self.gates)
        return Tokens(k, v, gates)


class MemoryState(NamedTuple):
    """One layer's memory.  A field is None where the composition has no use for it."""

    count: Tensor  # type: ignore[assignment]  # [B] tokens of each row's document so far; hides tuple.count
    ring: Tokens | None  # the tokens that softmax can still see or that wait for the fast weights
    fw: Tensor | None  # [B, H, K, V] the fast weights
    conv: tuple[Tensor, ...] | None  # the latest inputs of the convolutions on q, k, v


State = tuple[MemoryState, ...]  # a model's, layer by layer


def select_rows(state: State, rows: Tensor) -> State:
    """The state of these rows, an index [N] into the batch: reordered, dropped, repeated."""
    if not isinstance(rows, Tensor) or rows.dim() != 1:
        raise ValueError("rows: a tensor [N] of row numbers is needed, such as torch.tensor([1, 0]).")
    return _indexed(state, rows)


def check_state(x: Tensor, state: Any, layers: int) -> None:
    """A sentence unless this is what a model of so many layers gave, for as many rows as the text x [B, ...] has."""
    if state is None:
        return
    if not isinstance(state, tuple) or not all(isinstance(layer, MemoryState) for layer in state):
        raise ValueError(f"state: what the model gave with its last answer is needed, got {type(state).__name__}.")
    if len(state) != layers:
        raise ValueError(f"state: it is of a model with {len(state)} layers, and this one has {layers}.")
    if len(state[0].count) != len(x):
        raise ValueError(f"state: it is of {len(state[0].count)} rows, and the text has {len(x)}. See select_rows.")


def _indexed(tree: Any, rows: Tensor) -> Any:
    if isinstance(tree, Tensor):
        return tree[rows]
    if not isinstance(tree, tuple):
        return tree
    branches = [_indexed(branch, rows) for branch in tree]
    return type(tree)(*branches) if hasattr(tree, "_fields") else tuple(branches)


def last(x: Tensor, length: int, before: int = 0) -> Tensor:
    """A piece of `length` of dimension 2 that ends `before` its end, filled up with zeros at the front."""
    end = max(x.shape[2] - before, 0)
    piece = x[:, :, max(end - length, 0) : end]
    missing = length - piece.shape[2]
    return piece if missing == 0 else F.pad(piece, [0, 0] * (x.dim() - 3) + [missing, 0])


def moved(u: Tensor, place: Tensor, writes: int = 1) -> Tensor:
    """Row b holds u's tokens place[b], in that order, along dimension 2."""
    place = (place[:, :, None] * writes + torch.arange(writes, device=u.device)).flatten(1)  # [B, T * writes]
    place = place.reshape(len(place), 1, -1, *[1] * (u.dim() - 3))
    return u.gather(2, place.expand(len(u), u.shape[1], -1, *u.shape[3:]))


def kept(u: Tensor, room: int, places: Places, writes: int = 1) -> Tensor:
    """The last `room` tokens of each row's document along dimension 2, zeros where it has fewer.

    In memory of its own: a piece of a long text would keep all of it alive.
    """
    if places.plain:
        return last(u, room * writes).clone()
    padding = 0 if places.length is None else places.place.shape[1] - places.length[:, None]  # [B, 1]
    back = torch.arange(-room, 0, device=u.device).expand(len(u), -1)  # [B, room]
    found = moved(u, (u.shape[2] // writes - padding + back).clamp(min=0), writes)
    missing = (places.end[:, None] + back < 0).repeat_interleave(writes, 1)
    return found.masked_fill(missing.reshape(len(u), 1, -1, *[1] * (u.dim() - 3)), 0.0)
