"""How many numbers each part of a model moves for one token, forward: what it reads and what it writes, once each.

    a linear map or convolution, a norm     its input, its output
    the embedding                           the row it looks up, the row it gives
    softmax                                 q, k and v, its answer
    fast weights                            q, k and v of every write, the gates, their answer
    gates of a rule                         x, the gates
    feature map, positions                  what they change, there and back; nothing where they change nothing
    mixer                                   x, the answers it reads, its own; nothing where it hands one on

Element-wise work that is no part (activations, residual sums, the loss) is taken to happen while its neighbour has the
numbers at hand, and a state between chunks never to leave the processor.  Both cost something in practice.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from hqlt_lab.model.flops import MAPS, heads, part_of, place, token
from hqlt_lab.model.memory import HybridMemory
from hqlt_lab.model.sequence_model import SequenceModel


def traffic(model: SequenceModel) -> Iterator[tuple[str, int]]:
    """Parts and numbers per token, layer by layer; a part comes as often as it is used."""
    if model.embed is not None:
        yield "embedding", 2 * model.config.width
    if model.positions is not None:
        yield "positions", 2 * model.config.width
    for name, module in model.named_modules():
        if part_of(name) in MAPS and (moved := of_map(module)):
            yield part_of(name), moved
        elif isinstance(module, nn.RMSNorm | nn.LayerNorm):
            yield "norms", 2 * model.config.width  # one per head is as much as one per token
    for memory in model.memories:
        yield from of_memory(memory)


def of_map(module: nn.Module) -> int:
    """Of a linear map or a convolution; 0 for what only holds some."""
    if isinstance(module, nn.Linear):
        return module.in_features + module.out_features
    return module.in_channels + module.out_channels if isinstance(module, nn.Conv1d) else 0


@torch.no_grad()
def of_memory(memory: HybridMemory) -> Iterator[tuple[str, int]]:
    """The two memories and their mixer; every answer is as wide as the stream."""
    x = token(memory)
    u, width = heads(memory, x), x.shape[-1]
    fw, kv = (u if name in memory.mixer.reads else None for name in ("fw", "kv"))
    yield "mixer", 0 if memory.mixer(x, fw, kv) is u else (2 + len(memory.mixer.reads)) * width
    if memory.positions is not None:
        yield "softmax", 4 * width
        yield "positions", 0 if memory.positions.turn(u, place(u)) is u else 4 * width
    if memory.update_rule is not None:
        writes, rule = memory.writes, memory.update_rule
        gates = numbers_in(rule.gates(x))
        yield "update_rule", width + gates
        yield "feature_map", 2 * (1 + writes) * width
        yield "fast_weights", (2 + 2 * writes) * width + gates


def numbers_in(gates: Any) -> int:
    """Of one token; two gates that are one tensor are one."""
    return sum(gate.numel() for gate in {id(gate): gate for gate in gates if gate is not None}.values())
