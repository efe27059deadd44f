"""What computes the memories on a device, and why: known before anything is computed."""

from typing import NamedTuple

import torch

from hqlt_lab.model.memory import HybridMemory
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.ops.attention import form, is_masked
from hqlt_lab.ops.backends import ATTENTIONS, SCANS
from hqlt_lab.ops.choosing import Choice, Job, choose

NONE = Choice("none", "the mixer does not read it")


class Choices(NamedTuple):
    """Of one layer."""

    scan: Choice
    attention: Choice


def choices(
    model: SequenceModel, tokens: int, device: str, dtype: torch.dtype, documents: bool = False
) -> list[Choices]:
    """Layer by layer, for rows of so many tokens; `dtype` is what the layers compute in."""
    return [choices_of(memory, tokens, device, dtype, documents) for memory in model.memories]


def choices_of(memory: HybridMemory, tokens: int, device: str, dtype: torch.dtype, documents: bool) -> Choices:
    size, scan, attention = memory.to_q.out_features // memory.heads, NONE, NONE
    job = Job(device, dtype, size, size, documents)
    if memory.update_rule is not None:
        weight = memory.to_q.weight
        with torch.no_grad():  # which gates there are, not what they say
            gates = memory.update_rule.gates(weight.new_zeros(1, 1, memory.to_q.in_features))
        scan = memory.update_rule.computed_by(gates, job._replace(value=memory.update_rule.value_channels(size)))
    if memory.positions is not None:
        masked = is_masked(memory.schedule, tokens, tokens, documents)
        chosen = choose(ATTENTIONS, memory.ops.attention, job._replace(masked=masked))
        how = form(memory.schedule, tokens, tokens, documents)
        attention = chosen._replace(why=f"{chosen.why}; {how}") if chosen.name in ("blocks", "sdpa") else chosen
    return Choices(scan, attention)


def usual_choices() -> dict[str, Choice]:
    """On this machine, for heads of 128 channels in the precision that training has by default."""
    gpu = torch.cuda.is_available()
    job = Job("cuda" if gpu else "cpu", torch.bfloat16 if gpu else torch.float32, 128, 128)
    return {
        "fast weights": choose(SCANS, "auto", job),
        "softmax, all or blocks": choose(ATTENTIONS, "auto", job),
        "softmax, window": choose(ATTENTIONS, "auto", job._replace(masked=True)),
        "softmax, decoding": choose(ATTENTIONS, "auto", job._replace(masked=True, past=True, learning=False)),
    }
