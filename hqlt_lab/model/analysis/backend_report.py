"""Report which backends a model would use on a device, and why, without running it."""

from typing import NamedTuple

import torch

from hqlt_lab.model.hybrid_memory import HybridMemory
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.ops.attention.scheduled_softmax import is_masked, select_form
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
    return [memory_backends(memory, tokens, device, dtype, has_documents) for memory in model.memories]


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
    if memory.positions is not None:
        masked = is_masked(memory.schedule, tokens, tokens, has_documents)
        choice = select_backend(ATTENTION_BACKENDS, memory.ops.attention, spec._replace(is_masked=masked))
        form = select_form(memory.schedule, tokens, tokens, has_documents)
        attention = choice._replace(reason=f"{choice.reason}; {form}") if choice.name in ("blocks", "sdpa") else choice
    return LayerBackends(scan, attention)


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
