"""With `hold`, a scan wants every stretch to begin at a multiple of `hold`; rows and documents stand where they stand.

The carried state is the one before the current stretch, so a call that goes on from a state repeats the steps of that
stretch, taken from the ring.  Rows may be at different places of their stretch, and documents begin anywhere: each
token is put where

    grid = place mod hold        and each document begins at the next multiple of hold,

scanned there with steps in the holes that change nothing, and moved back.  What the unfinished stretch of a row's last
document would write waits in the ring; nobody reads it before.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from hqlt_lab.model.layout import Places, after_the_last


class Stretches(NamedTuple):
    """Where the tokens of a call go."""

    grid: Tensor  # [B or 1, T] for each token
    end: Tensor  # [B or 1, 1] after the last token of a row
    hold: int
    packed: bool

    @classmethod
    def of(cls, places: Places, hold: int) -> "Stretches":
        place = places.place
        grid = place[:, :1] % hold + torch.arange(place.shape[1], device=place.device)
        if places.packed:
            holes = torch.where(place[:, 1:] == 0, (-1 - place[:, :-1]) % hold, 0)  # left by the document before
            grid = torch.cat([grid[:, :1], grid[:, 1:] + holes.cumsum(1)], 1)
        return cls(grid, after_the_last(grid, places.length)[:, None], hold, places.packed)

    def sources(self, again: int) -> tuple[Tensor, Tensor]:
        """For each place of the grid the step that goes there, of `again` older ones and this call's; is there any?"""
        rows, tokens = self.grid.shape
        size = int(self.grid.max()) + 1 if self.packed else tokens + again
        old = self.grid[:, :1] + torch.arange(-again, 0, device=self.grid.device)  # negative: of an earlier stretch
        steps = torch.arange(again + tokens, device=self.grid.device).expand(rows, -1)
        source = torch.full((rows, again + size), -1, device=self.grid.device)
        source = source.scatter(1, torch.cat([old, self.grid], 1) + again, steps)[:, again:]
        return source.clamp(min=0), source >= 0

    def whole(self, size: int) -> Tensor:
        """[B or 1, size]: whether that place of the grid lies before the row's unfinished stretch."""
        return torch.arange(size, device=self.grid.device) < self.end // self.hold * self.hold
