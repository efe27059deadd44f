"""Gates of a linear update step, and the context of a scan.

    S_t = D_t S_{t-1} + k_t (omega_t v_t - l_t)^T       D_t = diag(alpha_t)      read: S_t^T q_t
    l_t = S_{t-1}^T D_t p_t                             what is looked up, after the decay
        = S_{t-1}^T p_t                                 or before it (an early lookup)

with keep alpha, write omega and the lookup key p = epsilon k, or epsilon times a key of its own.  If all gates are one
number per head and step and the lookup key is the key itself, this is

    S_t^T = alpha_t S_{t-1}^T (I - epsilon_t k_t k_t^T) + omega_t v_t k_t^T
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Optional, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

# torch.library reads operator schemas from annotations and supports Optional[...] but not `| None`
OptionalTensor = Optional[Tensor]  # noqa: UP045

# a named tuple of [B, H, T * writes, ...]: `Gates`, or a rule's own tuple
GateTuple = tuple[Tensor | None, ...]
GatesT = TypeVar("GatesT", bound=GateTuple)


class Gates(NamedTuple):
    """How one step decays, looks up and writes.  L is T * writes, K and V are the key and value channels.

    A gate without a channel dimension is one number per head and write.
    """

    log_keep: Tensor | None = None  # log alpha <= 0, [B, H, L] or [B, H, L, K]  (None: alpha = 1, nothing decays)
    erase: Tensor | None = None  # epsilon, [B, H, L] or [B, H, L, K]  (None: 0; with a lookup key of its own: 1)
    write: Tensor | None = None  # omega, [B, H, L] or [B, H, L, V]  (None: 1, write at full strength)
    # a lookup key other than k, used after the decay or before it; at most one of the two is given.
    # [B, H, L, K], or [B, H, T, K] if only the first write of each token looks up
    lookup: Tensor | None = None
    early_lookup: Tensor | None = None

    @property
    def has_scalar_form(self) -> bool:
        """Whether every gate is one number per head and write, and the lookup key is the key itself."""
        has_channels = any(gate is not None and gate.dim() == 4 for gate in self[:3])
        return not has_channels and self.own_lookup is None

    @property
    def own_lookup(self) -> Tensor | None:
        """The lookup key other than k, without epsilon."""
        return self.lookup if self.early_lookup is None else self.early_lookup

    @property
    def has_lookup(self) -> bool:
        """Whether a step looks up what the memory holds."""
        return self.erase is not None or self.own_lookup is not None

    def lookup_key(self, k: Tensor) -> Tensor | None:
        """Return p = epsilon times the key that is looked up, or None if nothing is looked up.

        k and the result are [B, H, L, K]; for the gates of a single step, [B, H, K].
        """
        if not self.has_lookup:
            return None
        key = k if self.own_lookup is None else self.own_lookup
        return key if self.erase is None else key * broadcast_gate(self.erase, key)

    def written_values(self, v: Tensor) -> Tensor:
        """Return omega v.  [B, H, L, V], or for a single step [B, H, V]."""
        return v if self.write is None else v * broadcast_gate(self.write, v)


def broadcast_gate(gate: Tensor, x: Tensor) -> Tensor:
    """Append a channel dimension to a gate that has none, so that it broadcasts to x."""
    return gate if gate.dim() == x.dim() else gate[..., None]


def fill_first_lookups(gates: Gates, tokens: int, writes: int) -> Gates:
    """Return gates in which lookup keys of the first write of each token [B, H, T, K] are given for all writes.

    The lookup keys of the other writes are 0, so they look nothing up.
    """

    def fill(gate: Tensor | None) -> Tensor | None:
        if gate is None or gate.shape[2] == tokens * writes:
            return gate
        return F.pad(gate[:, :, :, None], (0, 0, 0, writes - 1)).flatten(2, 3)

    return gates._replace(lookup=fill(gates.lookup), early_lookup=fill(gates.early_lookup))


def fill_last_values(v: Tensor, k: Tensor) -> Tensor:
    """Return values [B, H, L, V] for all writes, if v has those of the last write of each token only [B, H, T, V].

    The values of the other writes are 0, so they only erase.
    """
    writes = k.shape[2] // v.shape[2]
    return v if writes == 1 else F.pad(v[:, :, :, None], (0, 0, writes - 1, 0)).flatten(2, 3)


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
    """Write one pair into a linear memory.  state [B, H, K, V], k [B, H, K], v [B, H, V], gates [B, H, ...]."""
    lookup_key, values = gates.lookup_key(k), gates.written_values(v)
    if lookup_key is not None and gates.early_lookup is not None:
        values = values - look_up(state, lookup_key)
    if gates.log_keep is not None:
        state = state * broadcast_gate(gates.log_keep, k).exp()[..., None]
    if lookup_key is not None and gates.early_lookup is None:
        values = values - look_up(state, lookup_key)
    return state + k[..., :, None] * values[..., None, :]


def look_up(state: Tensor, key: Tensor) -> Tensor:
    """Return what the memory holds under a key: S^T key.  state [B, H, K, V], key [B, H, K] -> [B, H, V]."""
    return (key[..., None, :] @ state).squeeze(-2)
