"""The kernel of flash-linear-attention (fla) that computes a rule, and its arguments.

    lookup                                     decay per head       decay per key channel
    none                                       simple_gla           gla
    p = epsilon k, omega = epsilon per head    gated_delta_rule     kda              (without decay: delta_rule)
    p = epsilon k, any other gates             gdn2                 gdn2
    own key before the decay, omega = epsilon  comba                dplr_delta_rule
    own key, any other gates                   dplr_delta_rule      dplr_delta_rule

`dplr_delta_rule` computes the general step.  It looks up before the decay; a key p that is looked up after the decay is
the key D p before it:

    S_t = D_t S_{t-1} + b_t (S_{t-1}^T a_t)^T + k_t v_t^T         a = p, b = -k, v = omega v

Two writes of a token are one such step if only the first looks up and only the second has a value, as in RWKV-7: then b
comes from the key of the first write, and k from the second.

**Half precision.**  Keys are rounded to the precision of the values.  Of the old value under k, a step keeps 1 - p^T k.
Rounding must therefore not change p^T k: with p = 2 k, the memory would grow with every step.  Where the strength
epsilon is the only factor of p besides k, it is divided by the change of p^T k; a lookup key of its own is adjusted
before rounding.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hqlt_lab.ops.gates import Gates, broadcast_gate, fill_first_lookups, fill_last_values, map_gates
from hqlt_lab.ops.precision import at_least_float32

MIN_LOG_KEEP = -50.0  # e^-50 is negligible, and the kernels' sums lose precision with larger magnitudes
MAX_CORRECTION = 0.05  # rounding changes p^T k by more than this only if terms of both signs cancel
KERNEL_NAMES = (
    "simple_gla",
    "gla",
    "delta_rule",
    "gated_delta_rule",
    "kda",
    "gdn2",
    "comba",
    "dplr_delta_rule",
)


class KernelInputs(NamedTuple):
    """A kernel and its arguments, except the state.  In every kernel, a step with arguments of 0 changes nothing."""

    kernel: str  # one of KERNEL_NAMES
    q: Tensor  # [B, H, T, K]
    step_arguments: dict[str, Tensor]  # [B, H, T * n, ...], with n writes per token


def load_kernel(name: str, *, recurrent: bool) -> Callable[..., Any]:
    """Import a kernel: chunk-parallel, or one step at a time, which has no backward pass for most rules.

    Import statements can be traced by torch.compile, unlike importlib.
    """
    match name:
        case "simple_gla":
            from fla.ops.simple_gla import chunk_simple_gla, fused_recurrent_simple_gla

            return fused_recurrent_simple_gla if recurrent else chunk_simple_gla
        case "gla":
            from fla.ops.gla import chunk_gla, fused_recurrent_gla

            return rename_gla_decay(fused_recurrent_gla) if recurrent else chunk_gla
        case "delta_rule":
            from fla.ops.delta_rule import chunk_delta_rule, fused_recurrent_delta_rule

            return fused_recurrent_delta_rule if recurrent else chunk_delta_rule
        case "gated_delta_rule":
            from fla.ops.gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule

            return fused_recurrent_gated_delta_rule if recurrent else chunk_gated_delta_rule
        case "kda":
            from fla.ops.kda import chunk_kda, fused_recurrent_kda

            return fused_recurrent_kda if recurrent else chunk_kda
        case "gdn2":
            from fla.ops.gdn2 import chunk_gdn2, fused_recurrent_gdn2

            return fused_recurrent_gdn2 if recurrent else chunk_gdn2
        case "comba":
            from fla.ops.comba import chunk_comba, fused_recurrent_comba

            return fused_recurrent_comba if recurrent else chunk_comba
        case _:
            from fla.ops.generalized_delta_rule import fused_recurrent_dplr_delta_rule

            return fused_recurrent_dplr_delta_rule if recurrent else chunk_dplr_without_warning


def rename_gla_decay(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return fused_recurrent_gla with the argument names of chunk_gla."""
    return lambda g, **arguments: kernel(gk=g, **arguments)


@torch.compiler.disable  # as fla disables the kernel itself; a graph cannot be broken inside catch_warnings
def chunk_dplr_without_warning(**arguments: Any) -> Any:
    """Call chunk_dplr_delta_rule without its warning about float32, which it computes correctly."""
    from fla.ops.generalized_delta_rule import chunk_dplr_delta_rule

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* does not support float32 on some platforms", RuntimeWarning)
        return chunk_dplr_delta_rule(**arguments)


def make_kernel_inputs(q: Tensor, k: Tensor, v: Tensor, gates: Gates) -> KernelInputs:
    """Select the kernel of a linear rule and compute its arguments, with queries and keys in the precision of v.

    q [B, H, T, K]; k, v and gates are those of `linear_scan`.
    """
    gates = map_gates(at_least_float32, gates)
    if gates.log_keep is not None:
        gates = gates._replace(log_keep=gates.log_keep.clamp(min=MIN_LOG_KEEP))
    lookup, writes = gates.own_lookup, k.shape[2] // q.shape[2]
    if lookup is None:
        kernel, arguments = plain_kernel(k, fill_last_values(v, k), gates)
    elif writes == 2 and lookup.shape[2] < k.shape[2] and v.shape[2] < k.shape[2]:
        kernel, arguments = "dplr_delta_rule", merge_two_writes(k, v, gates)
    else:
        filled_gates = fill_first_lookups(gates, q.shape[2], writes)
        kernel, arguments = own_lookup_kernel(k, fill_last_values(v, k), filled_gates)
    return KernelInputs(kernel, q.to(v.dtype), arguments)


def plain_kernel(k: Tensor, v: Tensor, gates: Gates) -> tuple[str, dict[str, Tensor]]:
    """Return the kernel and its arguments for a rule that looks up the written key, or nothing."""
    log_keep, erase, write = gates[:3]
    rounded_k, has_channels = k.to(v.dtype), log_keep is not None and log_keep.dim() == 4
    if erase is None:
        arguments = {"k": rounded_k, "v": gates.written_values(v).to(v.dtype)}
        return "gla" if has_channels else "simple_gla", arguments | ({} if log_keep is None else {"g": log_keep})
    strength = broadcast_gate(erase, k)
    strength = strength * dot_correction((strength * k, k), (strength * rounded_k, rounded_k))
    if write is not erase or erase.dim() == 4:
        values = gates.written_values(v).to(v.dtype)  # the write gate of the kernel would be rounded to this precision
        gdn2_gates = {"g": channel_decay(log_keep, k), "b": strength.expand_as(k), "w": torch.ones_like(values)}
        return "gdn2", {"k": rounded_k, "v": values} | gdn2_gates
    arguments = {"k": rounded_k, "v": v, "beta": strength[..., 0]}
    if log_keep is None and v.dtype != torch.float32:  # which the kernels of delta_rule do not support
        return "delta_rule", arguments
    decay = torch.zeros_like(erase) if log_keep is None else log_keep
    return "kda" if has_channels else "gated_delta_rule", arguments | {"g": decay}


def own_lookup_kernel(k: Tensor, v: Tensor, gates: Gates) -> tuple[str, dict[str, Tensor]]:
    """Return the kernel and its arguments for a rule that looks up a key of its own with every write."""
    log_keep, erase, write, _, early_lookup = gates
    has_channels = any(gate is not None and gate.dim() == 4 for gate in (log_keep, erase))
    if early_lookup is None or erase is None or write is not erase or has_channels:
        values, lookup = gates.written_values(v).to(v.dtype), early_lookup_key(k, gates)
        return "dplr_delta_rule", dplr_arguments(k, values, lookup, k, channel_decay(log_keep, k))
    rounded_k, decay = k.to(v.dtype), torch.zeros_like(erase) if log_keep is None else log_keep
    lookup = round_lookup_key(early_lookup, k, rounded_k)
    return "comba", {"k": rounded_k, "v": v, "p": lookup, "g": decay, "beta": erase}


def merge_two_writes(k: Tensor, v: Tensor, gates: Gates) -> dict[str, Tensor]:
    """Return the arguments of one `dplr_delta_rule` step per token, which erases and then writes.

    The lookup keys [B, H, T, K] are those of the first writes, the values [B, H, T, V] those of the second.
    """
    (erased_key, k), write = k.unflatten(2, (-1, 2)).unbind(3), gates.write
    values = gates._replace(write=None if write is None else write[:, :, 1::2]).written_values(v).to(v.dtype)
    if gates.log_keep is None:
        return dplr_arguments(k, values, early_lookup_key(k, gates), erased_key, channel_decay(None, k))
    first_decay, second_decay = (channel_decay(gates.log_keep[:, :, i::2], k) for i in range(2))
    lookup = early_lookup_key(k, gates._replace(log_keep=first_decay))
    return dplr_arguments(k, values, lookup, second_decay.exp() * erased_key, first_decay + second_decay)


def early_lookup_key(k: Tensor, gates: Gates) -> Tensor:
    """Return the key that finds before the decay what the lookup key of `gates` finds."""
    lookup = gates.lookup_key(k)
    assert lookup is not None
    if gates.early_lookup is not None or gates.log_keep is None:
        return lookup
    return lookup * broadcast_gate(gates.log_keep, lookup).exp()


def channel_decay(log_keep: Tensor | None, k: Tensor) -> Tensor:
    """Return log-keeps for every key channel, in float32 or higher."""
    return at_least_float32(torch.zeros_like(k)) if log_keep is None else broadcast_gate(log_keep, k).expand_as(k)


def dplr_arguments(
    k: Tensor, values: Tensor, lookup: Tensor, erased_key: Tensor, log_keep: Tensor
) -> dict[str, Tensor]:
    """Return the arguments of `dplr_delta_rule`; what is found under `lookup` is subtracted under `erased_key`."""
    rounded_k, rounded_erased_key = k.to(values.dtype), erased_key.to(values.dtype)
    rounded_lookup = round_lookup_key(lookup, erased_key, rounded_erased_key)
    return {"k": rounded_k, "v": values, "a": rounded_lookup, "b": -rounded_erased_key, "gk": log_keep}


def dot_product(x: Tensor, y: Tensor) -> Tensor:
    """Return x^T y [.., 1], in float32 or higher."""
    return (at_least_float32(x) * y).sum(-1, keepdim=True)


@torch.no_grad()
def dot_correction(exact: tuple[Tensor, Tensor], rounded: tuple[Tensor, Tensor]) -> Tensor:
    """Return the ratio [.., 1] of the exact product p^T k and that of the rounded keys, or 1 if it is not close to 1.

    It has no gradient.  None is lost for p = epsilon k: |k|^2 changes along the key only, where a feature map with unit
    keys has gradient 0.
    """
    ratio = dot_product(*exact) / dot_product(*rounded)
    return torch.where((ratio - 1).abs() < MAX_CORRECTION, ratio, 1.0)  # also where it is not finite


def round_lookup_key(lookup: Tensor, erased_key: Tensor, rounded_erased_key: Tensor) -> Tensor:
    """Round a lookup key such that its product with the rounded key is the exact product.

    One channel is changed by what rounding changed the product: that which leaves the smallest error, among those in
    which the key is not small.  The gradient is that of plain rounding.
    """
    dtype = rounded_erased_key.dtype
    if lookup.dtype == dtype:
        return lookup
    with torch.no_grad():
        rounded, key = lookup.to(dtype).to(lookup.dtype), rounded_erased_key.to(lookup.dtype)
        error = dot_product(lookup, erased_key) - dot_product(rounded, key)
        changed = (rounded + error / key).to(dtype).to(lookup.dtype)
        remaining_error = (error - (changed - rounded) * key).abs()
        is_small = key.square() < 0.9 * key.square().mean(-1, keepdim=True)
        best = remaining_error.masked_fill(is_small | remaining_error.isnan(), torch.inf).argmin(-1, keepdim=True)
        change = torch.zeros_like(rounded).scatter(-1, best, (changed - rounded).gather(-1, best))
        rounding = torch.where((key == 0).all(-1, keepdim=True), 0.0, rounded + change - lookup)
    return (lookup + rounding).to(dtype)
