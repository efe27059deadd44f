"""Schedule: which past state of the fast weights a token reads, and which tokens softmax sees.

When the fast weights are read at token t, they hold the pairs written so far.  The pair of token s is written at step
s + delay (a step writes before it reads).  With `hold`, t reads the state from before its hold block, a block of
`hold` tokens.  Softmax at token t sees t and the tokens before it: at most the last `window` of them, and only those
of t's own `block`; and in addition the sinks, which are the first `sinks` tokens of the document.

    fast weights see s  iff  0 <= s and s + delay <= (t, or with `hold` the last step before t's hold block)
    softmax sees s      iff  0 <= s <= t, and s < sinks, or t - s < window and t and s lie in the same block

Masks, caches and kernels are derived from these two lines.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from hqlt_lab.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Which tokens each memory holds at each step.  A limit of None means no limit."""

    delay: int = 0
    """Steps before a pair is written to the fast weights."""
    hold: int | None = None
    """Length of the blocks of tokens that all read the state from before their block."""
    window: int | None = None
    """Tokens softmax sees, including the current one."""
    block: int | None = None
    """Length of the blocks within which softmax attends."""
    gates: Literal["current", "own"] = "current"
    """Gates a delayed pair is written with: those of the token at whose step it is written, or its own."""
    sinks: int = 0
    """First tokens of a document that softmax always sees, inside any window and block."""

    def __post_init__(self) -> None:
        for name, minimum in (("delay", 0), ("hold", 1), ("window", 1), ("block", 1), ("sinks", 0)):
            length = getattr(self, name)
            if length is not None and length < minimum:
                raise ConfigError.at(name, "below_minimum", f"at least {minimum} is needed, got {length}.")
        if self.gates not in ("current", "own"):
            raise ConfigError.at("gates", "unknown_choice", f"current or own is needed, got {self.gates!r}.")

    @property
    def attention_span(self) -> int | None:
        """Maximum number of tokens softmax sees at once, sinks aside, or None if it grows with the sequence."""
        limits = [limit for limit in (self.window, self.block) if limit is not None]
        return min(limits) if limits else None

    @property
    def limited_sinks(self) -> int:
        """Number of sinks that are kept beside the window; 0 without a window or block, where all tokens are seen."""
        return 0 if self.attention_span is None else self.sinks

    @property
    def max_pending_tokens(self) -> int:
        """Maximum number of tokens that were read but are not yet written to the fast weights."""
        return self.delay + (self.hold or 0)

    @property
    def needs_gate_cache(self) -> bool:
        """Whether a token's gates are needed after its own step."""
        return self.hold is not None or (self.delay > 0 and self.gates == "own")

    def fast_weight_mask(self, length: int) -> Tensor:
        """Return [length, length]: True where the fast weights read at token t (row) hold token s (column)."""
        t, s = _rows_and_columns(length)
        last_step = t if self.hold is None else t // self.hold * self.hold - 1
        return s + self.delay <= last_step

    def softmax_mask(self, length: int) -> Tensor:
        """Return [length, length]: True where softmax at token t (row) sees token s (column)."""
        return self.softmax_mask_at(*_rows_and_columns(length))

    def softmax_mask_at(self, t: Tensor, s: Tensor) -> Tensor:
        """Return whether softmax at position t sees position s, for positions that broadcast.

        A negative s is an empty cache slot or another document, and is never seen.
        """
        visible = self.window_mask_at(t, s)
        return visible | (s >= 0) & (s <= t) & (s < self.sinks) if self.limited_sinks else visible

    def window_mask_at(self, t: Tensor, s: Tensor) -> Tensor:
        """Return whether position s is within the window and the block of position t, sinks aside."""
        visible = (s >= 0) & (s <= t)
        if self.window is not None:
            visible = visible & (t - s < self.window)
        if self.block is not None:
            visible = visible & (t // self.block == s // self.block)
        return visible

    def count_visible(self, t: Tensor) -> Tensor:
        """Return the number of tokens that softmax sees at each position t >= 0."""
        first = torch.zeros_like(t)  # the first position in the window and the block
        if self.window is not None:
            first = torch.maximum(first, t + 1 - self.window)
        if self.block is not None:
            first = torch.maximum(first, t // self.block * self.block)
        return t + 1 - first + first.clamp(max=self.sinks)


def _rows_and_columns(length: int) -> tuple[Tensor, Tensor]:
    position = torch.arange(length)
    return position[:, None], position[None, :]
