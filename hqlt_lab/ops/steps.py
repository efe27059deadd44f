"""A linear update is three numbers per step: keep alpha, erase epsilon, write omega.

S_t = alpha_t S_{t-1} (I - epsilon_t k_t k_t^T) + omega_t v_t k_t^T            read: S_t q_t
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

# operators' schemas are read from annotations, which know Optional but no bar
Maybe = Optional[Tensor]  # noqa: UP045


class Gates(NamedTuple):
    """How strongly one step keeps, erases and writes.  Each is [B, H, T * writes], or None for its constant."""

    log_keep: Tensor | None = None  # log alpha, <= 0   (None: alpha = 1, nothing fades)
    erase: Tensor | None = None  #     epsilon          (None: 0, nothing is erased)
    write: Tensor | None = None  #     omega            (None: 1, write at full strength)


class Course(NamedTuple):
    """How a text goes through a memory, besides token by token."""

    hold: int | None = None  # length of the stretches whose tokens all read the state as it was before the stretch
    real: Tensor | None = None  # [B or 1, T]: at a token that is not, nothing is written (None: all are)
    starts: Tensor | None = None  # [B, T]: before such a token the memory is emptied; with `hold`, firsts of a stretch


PLAIN = Course()


def each(change: Callable[[Tensor], Tensor], gates: Any) -> Any:
    """The same change to every gate there is, once for two that are one; a nonlinear rule may bring its own tuple."""
    made = {id(gate): change(gate) for gate in {id(gate): gate for gate in gates if gate is not None}.values()}
    return type(gates)(*(None if gate is None else made[id(gate)] for gate in gates))


def joined(first: Any, second: Any) -> Any:
    """One after the other in time; two that are one in the second are one, though a state may have been copied."""
    made: dict[int, Tensor] = {}
    for a, b in zip(first, second, strict=True):
        if a is not None and id(b) not in made:
            made[id(b)] = torch.cat([a, b], 2)
    return type(second)(*(None if a is None else made[id(b)] for a, b in zip(first, second, strict=True)))


def linear_step(state: Tensor, k: Tensor, v: Tensor, gates: Gates) -> Tensor:
    """One write into a linear memory.  state [B, H, K, V], k [B, H, K], v [B, H, V], gates [B, H]."""
    log_keep, erase, write = (None if gate is None else gate[..., None, None] for gate in gates)
    k, v = k[..., :, None], v[..., None, :]  # [B, H, K, 1], [B, H, 1, V]
    if log_keep is not None:
        state = state * log_keep.exp()
    new = k * v if write is None else write * k * v
    return state + new if erase is None else state + new - erase * k * (k.mT @ state)


def forward_mode() -> bool:
    """Whether derivatives are taken forwards: an operator of our own would drop them without a word."""
    return bool(torch.autograd.forward_ad._current_level >= 0)


def no_autocast(tensor: Tensor) -> AbstractContextManager[Any]:
    """Inside, nothing is computed in less precision than it has; the meta device knows no autocast."""
    return nullcontext() if tensor.is_meta else torch.autocast(tensor.device.type, enabled=False)


def precise(tensor: Tensor) -> Tensor:
    """At least float32: a memory that adds up thousands of steps in bfloat16 forgets them."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
