"""Size of the state of a layer in bytes, computed without running it.

    kv_cache          capacity * writes * groups * (K + V)     capacity: see `HybridMemory.kv_cache_capacity`
    fw_cache          capacity * writes * heads * (K + V)      only if the fast weights have their own keys and values;
                      capacity: see `HybridMemory.fw_cache_capacity`
    gates             capacity * writes * heads * gates        only if gates are needed after their own step;
                      gates that are one tensor (erase = write = beta) are stored and counted once
    fw                heads * K' * V'                          at least float32; K' = features of a key, V' = V, or
                      V + 1 with a normalizer
    attention         capacity * heads * (features + 8 bytes of decay)      only what the attention component needs
    sinks             sinks * (groups * (K + V), heads * (features and decay))      only with a window or blocks
    conv              (taps - 1) * channels of q, k and v
    document_length   one integer

Heads, groups, K and V are those of the memory.  Groups are equal to heads, unless heads share keys and values.

The conformance checks compare these sizes with those of actual states.
"""

from copy import deepcopy
from typing import NamedTuple

import torch

from hqlt_lab.model.hybrid_memory import HybridMemory
from hqlt_lab.model.short_convolution import ShortConvolution
from hqlt_lab.ops.gates import distinct_gates


class StateSize(NamedTuple):
    """Bytes of the state of one layer, for one row."""

    kv_cache: int
    gates: int
    fw: int
    conv: int
    document_length: int
    attention: int = 0
    sinks: int = 0
    fw_cache: int = 0

    @property
    def total(self) -> int:
        return sum(self)


def state_size(memory: HybridMemory, context_length: int, dtype: torch.dtype = torch.float32) -> StateSize:
    """Return the state size after `context_length` tokens of a document, for a layer that computes in `dtype`.

    The layer may be on the meta device.
    """
    capacity = context_length if memory.kv_cache_capacity is None else memory.kv_cache_capacity
    pair_bytes = {name: count_pair_numbers(memory, name) * dtype.itemsize for name in ("fw", "kv")}
    fw = 0
    if memory.update_rule is not None:
        size, state_dtype = memory.sizes["fw"], torch.promote_types(dtype, torch.float32)
        fw = size.heads * memory.features * memory.update_rule.value_channels(size.value_dim) * state_dtype.itemsize
    attention = attention_bytes(memory, dtype)
    sinks = 0 if memory.positions is None else memory.schedule.limited_sinks
    return StateSize(
        kv_cache=capacity * memory.kv_writes * pair_bytes["kv"],
        gates=(capacity if memory.projections is None else memory.fw_cache_capacity) * gate_bytes(memory, dtype),
        fw=fw,
        conv=count_convolution_inputs(memory) * dtype.itemsize,
        document_length=torch.long.itemsize,
        attention=capacity * attention,
        sinks=sinks * (pair_bytes["kv"] + attention),
        fw_cache=memory.fw_cache_capacity * memory.writes * pair_bytes["fw"],
    )


def count_pair_numbers(memory: HybridMemory, name: str) -> int:
    """Return the numbers of one key and one value of all heads that a memory projects."""
    size = memory.projections_of(name).projected_size
    return size.groups * (size.key_dim + size.value_dim)


@torch.no_grad()
def gate_bytes(memory: HybridMemory, dtype: torch.dtype) -> int:
    """Return the bytes of one token's gates in the KV cache, measured on the gates of an example token."""
    if memory.update_rule is None or not memory.schedule.needs_gate_cache:
        return 0
    rule = deepcopy(memory.update_rule).to(dtype)
    token = torch.zeros(1, 1, memory.width, dtype=dtype, device=memory.to_out.weight.device)
    return sum(gate.numel() * gate.element_size() for gate in distinct_gates(rule.gates(token)))


@torch.no_grad()
def attention_bytes(memory: HybridMemory, dtype: torch.dtype) -> int:
    """Return the bytes that the attention component keeps of a cached token, measured on an example token."""
    if memory.attention is None:
        return 0
    attention = deepcopy(memory.attention).to(dtype)
    token = torch.zeros(1, 1, memory.width, dtype=dtype, device=memory.to_out.weight.device)
    features, log_forget = attention.key_features(token), attention.log_forget(token)
    feature_bytes = 0 if features is None else features.numel() * features.element_size()
    return feature_bytes + (0 if log_forget is None else memory.sizes["kv"].heads * torch.float64.itemsize)


def count_convolution_inputs(memory: HybridMemory) -> int:
    """Return how many inputs the short convolutions carry to the next call."""
    convolutions = (module for module in memory.modules() if isinstance(module, ShortConvolution))
    return sum(convolution.in_channels * (convolution.taps - 1) for convolution in convolutions)
