"""Traffic to the device's memory (HBM): numbers that each component reads and writes for one token in a forward pass.

    linear map, convolution, norm           its input and its output
    embedding                               the row that is looked up, and its copy
    softmax                                 q, k and v, and its output
    attention                               what it changes of q, k, v and the output, read and written, and if it
                                            computes gates of the token or changes the output, also x
    fast weights                            q, k and v of every write, the gates, and their output
    gates of a rule                         x and the gates
    feature map, positions                  what they change, read and written; 0 if they change nothing; a row of
                                            learned positions
    mixer                                   x, the outputs that it reads, its output; 0 if it passes one on unchanged

Element-wise work outside of components (activations, residual sums, the loss) is assumed to be fused with its
neighbors, and the states between chunks are assumed to stay on the processor.  Both cost something in practice.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from hqlt_lab.components.attention._base import Attention, AttentionInputs
from hqlt_lab.model.analysis.model_flops import (
    LINEAR_COMPONENTS,
    component_of_name,
    example_position,
    example_query,
    example_token,
)
from hqlt_lab.model.hybrid_memory import HybridMemory
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.ops.gates import GateTuple, distinct_gates


def component_traffic(model: SequenceModel) -> Iterator[tuple[str, int]]:
    """Yield components and their numbers per token; a component is yielded once for each use."""
    if model.embed is not None:
        yield "embedding", 2 * model.config.width
    if model.positions is not None:
        has_table = any(True for _ in model.positions.parameters())  # whose row is read too
        yield "positions", (3 if has_table else 2) * model.config.width
    for name, module in model.named_modules():
        if component_of_name(name) in LINEAR_COMPONENTS and (numbers := map_traffic(module)):
            yield component_of_name(name), numbers
        elif isinstance(module, nn.RMSNorm | nn.LayerNorm) and component_of_name(name) not in ("attention", "mixer"):
            yield "norms", 2 * model.config.width  # a norm per head moves as much as one per token
    for memory in model.memories:
        yield from hybrid_memory_traffic(memory)


def map_traffic(module: nn.Module) -> int:
    """Return the numbers that a linear map or a convolution moves; 0 for their containers."""
    if isinstance(module, nn.Linear):
        return module.in_features + module.out_features
    return module.in_channels + module.out_channels if isinstance(module, nn.Conv1d) else 0


@torch.no_grad()
def hybrid_memory_traffic(memory: HybridMemory) -> Iterator[tuple[str, int]]:
    """Yield the traffic of the two memories and their mixer, whose outputs all have the width of the stream."""
    x = example_token(memory)
    u, width = example_query(memory, x), x.shape[-1]
    fw, kv = (u if name in memory.mixer.reads else None for name in ("fw", "kv"))
    yield "mixer", 0 if memory.mixer(x, fw, kv) is u else (2 + len(memory.mixer.reads)) * width
    if memory.attention is not None and memory.positions is not None:
        yield "softmax", 4 * width
        if numbers := attention_traffic(memory.attention, x, u):
            yield "attention", numbers
        yield "positions", 0 if memory.positions.rotate(u, example_position(u)) is u else 4 * width
    if memory.update_rule is not None:
        writes, gates = memory.writes, count_gate_numbers(memory.update_rule.gates(x))
        yield "update_rule", width + gates
        features = memory.heads * memory.features
        yield "feature_map", (1 + writes) * (width + features)
        yield "fast_weights", (1 + writes) * (features + width) + gates


def attention_traffic(attention: Attention, x: Tensor, u: Tensor) -> int:
    """Return the numbers that an attention component moves for one token, whose query, key and value are u."""
    features, log_forget = attention.key_features(x), attention.log_forget(x)
    inputs = AttentionInputs(u, u, u, features, example_position(u) + 1)
    changed = attention.transform(x, inputs)
    pairs = [pair for pair in zip(inputs[:3], changed[:3], strict=True) if pair[1] is not pair[0]]
    output = changed.v
    if (finished := attention.finish(x, output)) is not output:
        pairs.append((output, finished))
    gates = sum(gate.numel() for gate in (features, log_forget) if gate is not None)
    reads_x = gates or finished is not output
    return sum(before.numel() + after.numel() for before, after in pairs) + gates + x.shape[-1] * bool(reads_x)


def count_gate_numbers(gates: GateTuple) -> int:
    """Return the elements of all distinct gates; tied gates, which are one tensor, count once."""
    return sum(gate.numel() for gate in distinct_gates(gates))
