"""Report which backends a model would use on a device, and why, without running it."""

from typing import NamedTuple

import torch
from torch import Tensor

from hqlt_lab.components.attention._base import Attention
from hqlt_lab.model.hybrid_memory import HybridMemory
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.ops.attention.scheduled_softmax import is_masked, needs_sinks, select_form
from hqlt_lab.ops.dispatch import ATTENTION_BACKENDS, SCAN_BACKENDS, BackendChoice, OpSpec, select_backend

NOT_USED = BackendChoice("none", "the mixer does not read it")


class LayerBackends(NamedTuple):
    """The backends of one layer."""

    scan: BackendChoice
    attention: BackendChoice


def layer_backends(
    model: SequenceModel, tokens: int, device: str, dtype: torch.dtype, has_documents: bool = False
) -> list[LayerBackends]:
    """Return the backends of each layer for rows of that many tokens; `dtype` is what the layers compute in."""
    inner_tokens = tokens + model.config.meta_tokens
    return [memory_backends(memory, inner_tokens, device, dtype, has_documents) for memory in model.memories]


def memory_backends(
    memory: HybridMemory, tokens: int, device: str, dtype: torch.dtype, has_documents: bool
) -> LayerBackends:
    scan, attention, token = NOT_USED, NOT_USED, memory.to_out.weight.new_zeros(1, 1, memory.width)
    if (rule := memory.update_rule) is not None:
        with torch.no_grad():  # only which gates are None matters, not their values
            gates = rule.gates(token)
        value_channels = rule.value_channels(memory.sizes["fw"].value_dim)
        scan = rule.backend_choice(gates, OpSpec(device, dtype, memory.features, value_channels))
    if memory.attention is not None:
        schedule, size = memory.schedule, memory.sizes["kv"]
        form = select_form(schedule, tokens, tokens, has_documents)
        attention_spec = OpSpec(
            device,
            dtype,
            size.key_dim,
            size.value_dim,
            is_masked=is_masked(schedule, tokens, tokens, has_documents),
            has_decay=has_decay(memory.attention, token),
            has_sinks=needs_sinks(schedule, tokens, tokens),
        )
        choice = select_backend(ATTENTION_BACKENDS, memory.ops.attention, attention_spec)
        attention = choice._replace(reason=f"{choice.reason}; {form}") if choice.name in ("blocks", "sdpa") else choice
    return LayerBackends(scan, attention)


@torch.no_grad()
def has_decay(attention: Attention, token: Tensor) -> bool:
    """Return whether an attention component has forget gates; `token` [1, 1, width] is an example."""
    return attention.log_forget(token) is not None


def default_backends() -> dict[str, BackendChoice]:
    """Return the backends on this machine for heads of 128 channels, in the default precision of training."""
    has_gpu = torch.cuda.is_available()
    spec = OpSpec("cuda" if has_gpu else "cpu", torch.bfloat16 if has_gpu else torch.float32, 128, 128)
    return {
        "fast weights": select_backend(SCAN_BACKENDS, "auto", spec),
        "softmax, all or blocks": select_backend(ATTENTION_BACKENDS, "auto", spec),
        "softmax, window": select_backend(ATTENTION_BACKENDS, "auto", spec._replace(is_masked=True)),
        "softmax, decoding": select_backend(
            ATTENTION_BACKENDS, "auto", spec._replace(is_masked=True, has_past_keys=True, needs_grad=False)
        ),
    }
