"""Where the tokens of a batch lie: padding anywhere, and several documents in one row.

logits, state = model(x, layout=Layout(real=x != PADDING))            rows of different lengths
logits, state = model(x, layout=Layout(starts=x == BEGINNING))        several documents in a row

A document is answered as if it were alone, wherever it lies: its memories begin empty at its first token.  Padding is
removed once, before the first layer: each row's tokens move to its front, so that a layer only ever has

    place_t = tokens of t's document before t,   counted on from the state, 0 again where a document begins

and a length per row.  Which pair is in which memory follows from these.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Layout(NamedTuple):
    """What the places of a batch [B, T] are.  Both are bool."""

    real: Tensor | None = None  # a token, not padding (None: all are)
    starts: Tensor | None = None  # the first token of a document (None: none begins but with the text); not at padding


class Places(NamedTuple):
    """What a layer needs to know of a layout whose padding is at the end of each row."""

    place: Tensor  # [B or 1, T] of each token in its document; padding counts on
    end: Tensor  # [B] tokens that the row's current document has after this call
    length: Tensor | None  # [B] tokens of each row, the rest is padding (None: all are tokens)
    packed: bool  # whether documents may begin in this call

    @property
    def plain(self) -> bool:
        """Whether all rows end together and in the document they came with."""
        return self.length is None and not self.packed


def places_of(x: Tensor, count: Tensor | None, layout: Layout | None = None) -> Places:
    """For x [B, T, ...] whose rows' documents had `count` [B] tokens before (None: none); padding is at the end."""
    real, starts = layout or Layout()
    index = torch.arange(x.shape[1], device=x.device)[None]
    place = index if count is None else count[:, None] + index  # [B or 1, T]
    if starts is not None:
        first = torch.where(starts, index, -1).cummax(1).values  # of the token's document; -1: it began before
        place = torch.where(first < 0, place, index - first)
    length = None if real is None else real.sum(1)
    return Places(place, after_the_last(place, length).expand(len(x)).clone(), length, starts is not None)


def after_the_last(place: Tensor, length: Tensor | None) -> Tensor:
    """The place that the next token of each row would have [B or 1], for places [B or 1, T] where padding counts on."""
    following = place[:, -1:] + 1
    if length is None:
        return following[:, 0]
    counted = torch.cat([place, following], 1).expand(len(length), -1)
    return counted.gather(1, length[:, None])[:, 0]


def closed_up(x: Tensor, layout: Layout) -> tuple[Tensor, Layout, Tensor]:
    """x [B, T, D] with each row's tokens moved to its front and zeros behind; its layout; where each came from."""
    real, starts = layout
    assert real is not None
    order = (~real).int().argsort(dim=1, stable=True)  # [B, T]
    real = real.gather(1, order)
    # filled, not multiplied: padding may hold anything, and NaN times 0 is NaN
    x = x.gather(1, order[..., None].expand_as(x)).masked_fill(~real[..., None], 0.0)
    return x, Layout(real, None if starts is None else starts.gather(1, order) & real), order


def spread_out(x: Tensor, layout: Layout, order: Tensor) -> Tensor:
    """The way back of `closed_up`, zeros at padding."""
    real, _ = layout
    assert real is not None
    x = x.masked_fill(~real[..., None], 0.0)
    return torch.zeros_like(x).scatter(1, order[..., None].expand_as(x), x)


def check_layout(x: Tensor, layout: Layout | None) -> None:
    """Sentences unless both fields fit the text x [B, T, ...]."""
    if layout is not None and not isinstance(layout, Layout):
        raise ValueError(f"layout: a Layout(real, starts) is needed, got {type(layout).__name__}.")
    needed = f"bool {list(x.shape[:2])} is needed, as the text is"
    complaints = [
        f"layout.{name}: {needed}, got {described(given)}."
        for name, given in zip(Layout._fields, layout or Layout(), strict=True)
        if given is not None and described(given) != f"bool {list(x.shape[:2])}"
    ]
    if complaints:
        raise ValueError("\n".join(complaints))


def described(given: object) -> str:
    """Type and shape of a tensor, or the type of what is none."""
    if not isinstance(given, Tensor):
        return type(given).__name__
    return f"{str(given.dtype).removeprefix('torch.')} {list(given.shape)}"
