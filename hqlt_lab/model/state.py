"""What one layer remembers between two calls.

Its shape and content depend on the tokens seen alone, not on how they arrived: a prompt at once, in pieces, or token
by token. Per head it is the paper's S (K + V) + K V numbers; gates that wait, a normaliser and the convolution's
inputs come on top.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

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

    def alone(self) -> "Tokens":
        """In memory of their own: a piece of a long text would keep all of it alive."""
        gates = None if self.gates is None else each(torch.clone, self.gates)
        return Tokens(self.k.clone(), self.v.clone(), gates)


class MemoryState(NamedTuple):
    """One layer's memory.  A field is None where the composition has no use for it."""

    count: Tensor  # type: ignore[assignment]  # [B] tokens seen by each row; hides tuple.count
    ring: Tokens | None  # the tokens that softmax can still see or that wait for the fast weights
    fw: Tensor | None  # [B, H, K, V] the fast weights
    conv: tuple[Tensor, ...] | None  # the latest inputs of the convolutions on q, k, v


def last(x: Tensor, length: int, before: int = 0) -> Tensor:
    """A piece of `length` of dimension 2 that ends `before` its end, filled up with zeros at the front."""
    end = max(x.shape[2] - before, 0)
    piece = x[:, :, max(end - length, 0) : end]
    missing = length - piece.shape[2]
    return piece if missing == 0 else F.pad(piece, [0, 0] * (x.dim() - 3) + [missing, 0])
