"""A timing is data: which past state of the fast weights is read, and what softmax may see.

The fast weights, read at token t, hold the pairs that were written by then: a pair of token s arrives at step s +
delay (a write precedes the read of its step), and with `hold` the state is read as it was when t's stretch of `hold`
tokens began. Softmax, read at token t, sees t itself and the tokens before it, the last `window` of them, and only
those of t's own `block`.

    fast weights see s  iff  0 <= s and s + delay <= (t, or the last step before t's stretch of `hold`)
    softmax sees s      iff  0 <= s <= t, t - s < window, and t and s lie in the same block

Masks, caches and kernels derive from these two lines.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from hqlt_lab.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """When a token is in which memory.  None: no limit."""

    delay: int = 0
    """Steps a pair waits before it enters the fast weights."""
    hold: int | None = None
    """Length of a stretch of tokens that all read the state as it was before the first of them."""
    window: int | None = None
    """Tokens softmax sees, the current one included."""
    block: int | None = None
    """Length of the blocks that softmax does not look out of."""
    gates: Literal["current", "travel"] = "current"
    """Whose gates write a delayed pair: those of the token at whose step it arrives, or its own."""

    def __post_init__(self) -> None:
        for name, least in (("delay", 0), ("hold", 1), ("window", 1), ("block", 1)):
            length = getattr(self, name)
            if length is not None and length < least:
                raise ConfigError(f"{name}: at least {least} is needed, got {length}.")
        if self.gates not in ("current", "travel"):
            raise ConfigError(f"gates: current or travel is needed, got {self.gates!r}.")

    @property
    def span(self) -> int | None:
        """The most tokens softmax ever sees at once, or None if that grows with the text."""
        limits = [limit for limit in (self.window, self.block) if limit is not None]
        return min(limits) if limits else None

    @property
    def waits(self) -> int:
        """How many tokens may have been read and not yet be in the fast weights."""
        return self.delay + (self.hold or 0)

    @property
    def keeps_gates(self) -> bool:
        """Whether a token's gates are needed after its own step."""
        return self.hold is not None or (self.delay > 0 and self.gates == "travel")

    def fast_weights_see(self, length: int) -> Tensor:
        """[length, length]: row t, column s."""
        t, s = _rows_and_columns(length)
        last = t if self.hold is None else t // self.hold * self.hold - 1
        return s + self.delay <= last

    def softmax_sees(self, length: int) -> Tensor:
        """[length, length]: row t, column s."""
        return self.softmax_sees_at(*_rows_and_columns(length))

    def softmax_sees_at(self, t: Tensor, s: Tensor) -> Tensor:
        """The same for any positions that broadcast; a negative s is a place where no token ever was."""
        sees = (s >= 0) & (s <= t)
        if self.window is not None:
            sees = sees & (t - s < self.window)
        if self.block is not None:
            sees = sees & (t // self.block == s // self.block)
        return sees


def _rows_and_columns(length: int) -> tuple[Tensor, Tensor]:
    place = torch.arange(length)
    return place[:, None], place[None, :]
