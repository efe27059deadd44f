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
    size, scan, attention = memory.to_q.out_features // memory.heads, NOT_USED, NOT_USED
    spec = OpSpec(device, dtype, size, size)
    if (rule := memory.update_rule) is not None:
        weight = memory.to_q.weight
        with torch.no_grad():  # only which gates are None matters, not their values
            gates = rule.gates(weight.new_zeros(1, 1, memory.to_q.in_features))
        scan = rule.backend_choice(gates, spec._replace(key_dim=memory.features, value_dim=rule.value_channels(size)))
    if memory.attention is not None:
        schedule = memory.schedule
        form = select_form(schedule, tokens, tokens, has_documents)
        attention_spec = spec._replace(
            is_masked=is_masked(schedule, tokens, tokens, has_documents),
            has_decay=has_decay(memory.attention, memory.to_q.weight),
            has_sinks=needs_sinks(schedule, tokens, tokens),
        )
        choice = select_backend(ATTENTION_BACKENDS, memory.ops.attention, attention_spec)
        attention = choice._replace(reason=f"{choice.reason}; {form}") if choice.name in ("blocks", "sdpa") else choice
    return LayerBackends(scan, attention)


@torch.no_grad()
def has_decay(attention: Attention, weight: Tensor) -> bool:
    """Return whether an attention component has forget gates; `weight` is a linear map of its layer."""
    return attention.log_forget(weight.new_zeros(1, 1, weight.shape[1])) is not None


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
