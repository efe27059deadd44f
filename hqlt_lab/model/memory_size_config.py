"""Sizes of a memory: its heads, and the channels of its keys and values.  This module does not import torch.

    model: {width: 512, heads: 8, fw: {heads: 6, key_dim: 48, value_dim: 96}, kv: {groups: 2}, projections: separate}

The sections `fw` and `kv` set sizes of one memory; keys that are left out have the value that the memories share.
"""

from dataclasses import dataclass
from typing import Any

from hqlt_lab.errors import ConfigIssue
from hqlt_lab.registry import check_maximums, check_minimums
from hqlt_lab.registry.settings_parsing import raise_if_invalid

MAX_HEAD_DIM = 2**20


@dataclass(frozen=True, kw_only=True)
class FwSizeConfig:
    """Sizes of the fast weights."""

    heads: int | None = None
    """Heads of the fast weights; null: `model.heads`."""
    key_dim: int | None = None
    """Channels of a query or key per head; null: `model.head_dim`."""
    value_dim: int | None = None
    """Channels of a value per head; null: `model.head_dim`."""

    def __post_init__(self) -> None:
        raise_if_invalid(find_size_issues(self, ("heads", "key_dim", "value_dim")))


@dataclass(frozen=True, kw_only=True)
class KvSizeConfig:
    """Sizes of softmax attention."""

    heads: int | None = None
    """Heads of softmax; null: `model.heads`."""
    groups: int | None = None
    """Heads of keys and values, which several query heads share (grouped-query attention); null: one for each head."""
    key_dim: int | None = None
    """Channels of a query or key per head; null: `model.head_dim`."""
    value_dim: int | None = None
    """Channels of a value per head; null: `model.head_dim`."""

    def __post_init__(self) -> None:
        raise_if_invalid(find_size_issues(self, ("heads", "groups", "key_dim", "value_dim")))


def find_size_issues(settings: Any, names: tuple[str, ...]) -> list[ConfigIssue]:
    """Return one issue for each size that is too small or too large."""
    return check_minimums(settings, dict.fromkeys(names, 1)) + check_maximums(
        settings, dict.fromkeys(names, MAX_HEAD_DIM)
    )


MEMORY_SIZE_CONFIGS: dict[str, type[FwSizeConfig] | type[KvSizeConfig]] = {"fw": FwSizeConfig, "kv": KvSizeConfig}


@dataclass(frozen=True)
class MemorySize:
    """Sizes of one memory of a layer."""

    heads: int
    groups: int  # heads of keys and values: heads / groups query heads share each of them
    key_dim: int
    value_dim: int

    @property
    def channels(self) -> int:
        """Channels of the output, over all heads."""
        return self.heads * self.value_dim

    def arguments(self, width: int) -> dict[str, Any]:
        """Return the arguments of components of this memory, in a stream of `width` channels."""
        return {"width": width, "heads": self.heads, "key_dim": self.key_dim, "value_dim": self.value_dim}


def equal_size(heads: int, head_dim: int) -> MemorySize:
    """Return the size of a memory whose keys and values have `head_dim` channels in each head."""
    return MemorySize(heads, heads, head_dim, head_dim)
