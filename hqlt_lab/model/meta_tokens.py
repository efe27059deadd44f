"""Meta tokens: learned vectors in front of every document, which both memories read like its first tokens.

The vectors are inserted after the embedding and before the first layer, and removed before the head, so that the model
has the same inputs and outputs as without them.  They take the first positions of a document, so the first real token
of a document is at position `meta_tokens`; `document_length` of a state includes them.

A row begins a document when it is read without a state, and at every `doc_start`.  A call that only continues documents
inserts nothing.

Dong et al. 2024, arXiv:2411.13676 (Hymba).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from hqlt_lab.model.batch_layout import Layout


class InsertedTokens(NamedTuple):
    """A batch with meta tokens."""

    x: Tensor  # [B, T', width]
    layout: Layout | None
    token_slots: Tensor | None  # [B, T] where each original token is (None: at the end of the row)
    length: int  # original tokens of a row

    def remove(self, y: Tensor) -> Tensor:
        """Return the elements of y [B, T', D] that belong to original tokens: [B, T, D]."""
        if self.token_slots is None:
            return y[:, -self.length :]
        return y.gather(1, self.token_slots[..., None].expand(-1, -1, y.shape[2]))


def insert_meta_tokens(x: Tensor, meta: Tensor, layout: Layout | None, is_first_call: bool) -> InsertedTokens | None:
    """Insert meta tokens [N, width] where documents of x [B, T, width] begin; None if none begins.

    Padding is at the end of each row.
    """
    valid_mask, doc_start = layout or Layout()
    if doc_start is None:
        return insert_in_front(x, meta, valid_mask) if is_first_call else None
    count = len(meta)
    starts = doc_start if valid_mask is None else doc_start & valid_mask
    if is_first_call:  # the row itself begins a document
        starts = torch.cat([torch.ones_like(starts[:, :1]), starts[:, 1:]], 1)
    token_slots = torch.arange(x.shape[1], device=x.device) + count * starts.cumsum(1)  # [B, T]
    inserted = starts.sum(1)  # [B] documents that begin
    length = x.shape[1] + count * int(inserted.max())
    row_length = count * inserted + (x.shape[1] if valid_mask is None else valid_mask.sum(1))
    slot = torch.arange(length, device=x.device)
    source = torch.full((len(x), length), -1, device=x.device).scatter(
        1, token_slots, slot[: x.shape[1]].expand_as(token_slots)
    )
    is_token = source >= 0
    # the meta tokens fill the gap behind the token before them
    number = (slot - slot.where(is_token, -1).cummax(1).values - 1).clamp(max=count - 1)
    tokens = x.gather(1, source.clamp(min=0)[..., None].expand(-1, -1, x.shape[2]))
    valid = slot < row_length[:, None]
    filled = torch.where(is_token[..., None], tokens, meta.to(x.dtype)[number.clamp(min=0)])
    first_slots = (token_slots - count).where(starts, length)  # where documents begin now
    new_starts = torch.zeros(len(x), length + 1, dtype=torch.bool, device=x.device)
    new_starts = new_starts.scatter(1, first_slots, True)[:, :length]
    if is_first_call:
        new_starts[:, 0] = doc_start[:, 0]
    x = filled.masked_fill(~valid[..., None], 0.0)
    return InsertedTokens(x, Layout(valid, new_starts & valid), token_slots, token_slots.shape[1])


def insert_in_front(x: Tensor, meta: Tensor, valid_mask: Tensor | None) -> InsertedTokens:
    """Insert meta tokens in front of each row."""
    meta = meta.to(x.dtype).expand(len(x), -1, -1)
    layout = None
    if valid_mask is not None:
        layout = Layout(torch.cat([valid_mask.new_ones(meta.shape[:2]), valid_mask], 1))
    return InsertedTokens(torch.cat([meta, x], 1), layout, None, x.shape[1])
