"""Precision helpers of scans and attention: disable autocast, promote to float32, detect forward-mode AD."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def is_forward_mode_ad() -> bool:
    """Return True under forward-mode AD, which our custom operators do not support: they would drop the tangents."""
    return bool(torch.autograd.forward_ad._current_level >= 0)


def disable_autocast(tensor: Tensor) -> AbstractContextManager[Any]:
    """Return a context in which autocast does not lower the precision.  No-op on meta, which has no autocast."""
    return nullcontext() if tensor.is_meta else torch.autocast(tensor.device.type, enabled=False)


def at_least_float32(tensor: Tensor) -> Tensor:
    """Promote to float32 or higher: a bfloat16 sum over thousands of steps would lose the small updates."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
