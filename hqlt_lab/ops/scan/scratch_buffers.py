"""Buffers for the intermediate results of a scan.  All chunks share them, so that they stay in the CPU cache."""

import torch
from torch import Tensor


class Buffers(dict[tuple[str, tuple[int, ...]], Tensor]):
    """Buffers by name and shape, shared by all chunks."""

    def get_buffer(self, name: str, like: Tensor, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        """Return the buffer of this name and shape, in the given dtype or that of `like`."""
        key = (name, shape)
        if key not in self:
            self[key] = like.new_empty(shape, dtype=dtype)
        return self[key]

    def bmm(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        return torch.bmm(a, b, out=self.get_buffer(name, a, (a.shape[0], a.shape[1], b.shape[2])))

    def mul(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        return torch.mul(a, b, out=self.get_buffer(name, a, tuple(a.shape)))

    def scale_into(self, name: str, x: Tensor, factor: Tensor | None) -> Tensor:
        """Return x * factor in the named buffer, or x itself if the factor is None."""
        return x if factor is None else self.mul(name, x, factor)

    def zeros(self, name: str, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        return self.get_buffer(name, like, shape).zero_()

    def eye(self, like: Tensor) -> Tensor:
        key = ("eye", tuple(like.shape))
        if key not in self:
            self[key] = torch.eye(like.shape[1], dtype=like.dtype, device=like.device).expand_as(like)
        return self[key]

    def upper_ones(self, like: Tensor) -> Tensor:
        """Return an upper triangular matrix of ones [R, n, n] for `like` [R, n, ..]."""
        key = ("upper_ones", tuple(like.shape))
        if key not in self:
            rows, length = like.shape[:2]
            self[key] = like.new_ones(length, length).triu().expand(rows, -1, -1)
        return self[key]


def scale_optional_(x: Tensor, factor: Tensor | None) -> Tensor:
    """Multiply x by the factor in place, unless the factor is None."""
    return x if factor is None else x.mul_(factor)
