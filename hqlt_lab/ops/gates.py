"""Gates of a linear update step (keep alpha, erase epsilon, write omega), and the context of a scan.

S_t = alpha_t S_{t-1} (I - epsilon_t k_t k_t^T) + omega_t v_t k_t^T            read: S_t q_t
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Optional, TypeVar

import torch
from torch import Tensor

# torch.library reads operator schemas from annotations and supports Optional[...] but not `| None`
OptionalTensor = Optional[Tensor]  # noqa: UP045

# a named tuple: `Gates` of [B, H, T * writes], or the tuple of a nonlinear rule, of [B, H, T * writes, ...]
GateTuple = tuple[Tensor | None, ...]
GatesT = TypeVar("GatesT", bound=GateTuple)


class Gates(NamedTuple):
    """How strongly one step keeps, erases and writes.  Each is [B, H, T * writes], or None for its constant."""

    log_keep: Tensor | None = None  # log alpha, <= 0   (None: alpha = 1, nothing decays)
    erase: Tensor | None = None  #     epsilon          (None: 0, nothing is erased)
    write: Tensor | None = None  #     omega            (None: 1, write at full strength)


class ScanContext(NamedTuple):
    """Options of a scan: hold blocks, tokens that write nothing, and document starts."""

    # length of the hold blocks: all tokens of a block read the state from before the block
    hold: int | None = None
    # [B or 1, T]: False for tokens that write nothing (None: all tokens write)
    valid_mask: Tensor | None = None
    # [B, T]: True for tokens before which the memory is reset; with `hold`, only first tokens of a hold block
    doc_start: Tensor | None = None


DEFAULT_CONTEXT = ScanContext()


def distinct_gates(gates: GateTuple) -> list[Tensor]:
    """Return each tensor among the gates once; None is left out."""
    return list({id(gate): gate for gate in gates if gate is not None}.values())


def map_gates(function: Callable[[Tensor], Tensor], gates: GatesT) -> GatesT:
    """Apply a function to every gate that is not None, once per distinct tensor.  Works on any named tuple."""
    mapped = {id(gate): function(gate) for gate in distinct_gates(gates)}
    return _make_gates(gates, [None if gate is None else mapped[id(gate)] for gate in gates])


def concat_gates(first: GatesT, second: GatesT) -> GatesT:
    """Concatenate gates along time.  Gates that are one tensor in `second` stay one tensor in the result.

    `first` may come from a copied state, in which tied gates are no longer the same tensor.
    """
    concatenated: dict[int, Tensor] = {}
    for a, b in zip(first, second, strict=True):
        if a is not None and b is not None and id(b) not in concatenated:
            concatenated[id(b)] = torch.cat([a, b], 2)
    return _make_gates(second, [None if a is None else concatenated[id(b)] for a, b in zip(first, second, strict=True)])


def _make_gates(like: GatesT, gates: list[Tensor | None]) -> GatesT:
    """Return a named tuple of the same class as `like`."""
    make: Callable[..., GatesT] = type(like)  # a named tuple takes its fields as arguments, unlike `tuple`
    return make(*gates)


def named_gates(gates: GateTuple) -> dict[str, Tensor]:
    """Return the gates that are not None by their field names."""
    named_tuple: Any = gates
    return {name: gate for name, gate in zip(named_tuple._fields, gates, strict=True) if gate is not None}


def linear_step(state: Tensor, k: Tensor, v: Tensor, gates: Gates) -> Tensor:
    """Write one pair into a linear memory.  state [B, H, K, V], k [B, H, K], v [B, H, V], gates [B, H]."""
    log_keep, erase, write = (None if gate is None else gate[..., None, None] for gate in gates)
    k, v = k[..., :, None], v[..., None, :]  # [B, H, K, 1], [B, H, 1, V]
    if log_keep is not None:
        state = state * log_keep.exp()
    new = k * v if write is None else write * k * v
    return state + new if erase is None else state + new - erase * k * (k.mT @ state)
