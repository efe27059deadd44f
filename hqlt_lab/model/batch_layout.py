"""Layout of a batch: padding anywhere, and several documents in one row.

logits, state = model(x, layout=Layout(valid_mask=x != PADDING))         rows of different lengths
logits, state = model(x, layout=Layout(doc_start=x == BEGINNING))        several documents in a row

Each document gets the same output as if it were alone: its memories are empty at its first token.  Padding is removed
once, before the first layer, by moving the tokens of each row to its front.  A layer therefore only needs

    position_t = tokens of t's document before t,   continued from the state, 0 where a document begins

and a length per row.  Which pair is in which memory follows from these.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Layout(NamedTuple):
    """Padding mask and document starts of a batch, bool [B, T] each."""

    # True for tokens, False for padding (None: no padding)
    valid_mask: Tensor | None = None
    # True for the first token of a document (None: none begins within the batch); ignored at padding
    doc_start: Tensor | None = None


class TokenPositions(NamedTuple):
    """Positions and lengths of the tokens of a call, for rows with padding at their end."""

    position: Tensor  # [B or 1, T] position of each token in its document; continues to count at padding
    document_length: Tensor  # [B] length of the row's current document after this call
    row_length: Tensor | None  # [B] tokens of each row, the rest is padding (None: no padding)
    is_packed: bool  # whether documents may begin in this call

    @property
    def is_uniform(self) -> bool:
        """Whether all rows have the same length and no document begins in this call."""
        return self.row_length is None and not self.is_packed

    def longest_document(self) -> Tensor:
        """Return the tokens so far of the longest document that has tokens in this call, as a tensor []."""
        if self.row_length is None:
            return self.position.max() + 1
        is_token = torch.arange(self.position.shape[1], device=self.position.device) < self.row_length[:, None]
        return torch.where(is_token, self.position, -1).max() + 1


def compute_token_positions(x: Tensor, past_length: Tensor | None, layout: Layout | None = None) -> TokenPositions:
    """Compute the positions for x [B, T, ...] with padding at the end of each row.

    `past_length` [B] is the number of tokens that the current document of each row had before this call (None: 0).
    """
    valid_mask, doc_start = layout or Layout()
    index = torch.arange(x.shape[1], device=x.device)[None]
    position = index if past_length is None else past_length[:, None] + index  # [B or 1, T]
    if doc_start is not None:
        # index of the first token of each token's document; -1: it began before this call
        first_index = torch.where(doc_start, index, -1).cummax(1).values
        position = torch.where(first_index < 0, position, index - first_index)
    row_length = None if valid_mask is None else valid_mask.sum(1)
    document_length = next_position(position, row_length).expand(len(x)).clone()
    return TokenPositions(position, document_length, row_length, doc_start is not None)


def next_position(position: Tensor, row_length: Tensor | None) -> Tensor:
    """Return the position of the next token of each row [B or 1], given positions [B or 1, T] that count at padding."""
    following = position[:, -1:] + 1
    if row_length is None:
        return following[:, 0]
    extended = torch.cat([position, following], 1).expand(len(row_length), -1)
    return extended.gather(1, row_length[:, None])[:, 0]


def left_align(x: Tensor, layout: Layout) -> tuple[Tensor, Layout, Tensor]:
    """Move the tokens of each row of x [B, T, D] to its front, followed by zeros.

    Return x, its layout, and the original index of each element [B, T], which `restore_padding` needs.
    """
    valid_mask, doc_start = layout
    assert valid_mask is not None
    order = (~valid_mask).int().argsort(dim=1, stable=True)  # [B, T]
    valid_mask = valid_mask.gather(1, order)
    # masked_fill instead of a product: padding may hold NaN, and NaN times 0 is NaN
    x = x.gather(1, order[..., None].expand_as(x)).masked_fill(~valid_mask[..., None], 0.0)
    doc_start = None if doc_start is None else doc_start.gather(1, order) & valid_mask
    return x, Layout(valid_mask, doc_start), order


def restore_padding(x: Tensor, layout: Layout, order: Tensor) -> Tensor:
    """Undo `left_align`: move each element of x back to its original index, with zeros at padding."""
    valid_mask, _ = layout
    assert valid_mask is not None
    x = x.masked_fill(~valid_mask[..., None], 0.0)
    return torch.zeros_like(x).scatter(1, order[..., None].expand_as(x), x)


def check_layout(x: Tensor, layout: Layout | None) -> None:
    """Raise ValueError unless both fields of the layout fit x [B, T, ...]."""
    if layout is not None and not isinstance(layout, Layout):
        raise ValueError(f"layout: a Layout(valid_mask, doc_start) is needed, got {type(layout).__name__}.")
    expected = f"bool {list(x.shape[:2])}"
    errors = [
        f"layout.{name}: {expected} is needed, like the input, got {describe_tensor(field)}."
        for name, field in zip(Layout._fields, layout or Layout(), strict=True)
        if field is not None and describe_tensor(field) != expected
    ]
    if errors:
        raise ValueError("\n".join(errors))


def describe_tensor(value: object) -> str:
    """Return the dtype and shape of a tensor, or the type of any other value."""
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
