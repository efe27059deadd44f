"""Traffic to the device's memory (HBM): numbers that each component reads and writes for one token in a forward pass.

    linear map, convolution, norm           its input and its output
    embedding                               the row that is looked up, and its copy
    softmax                                 q, k and v, and its output; k and v of heads that share them once
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
    example_outputs,
    example_position,
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
            yield "norms", 2 * normalized_channels(model, name)
    for memory in model.memories:
        yield from hybrid_memory_traffic(memory)


def map_traffic(module: nn.Module) -> int:
    """Return the numbers that a linear map or a convolution moves; 0 for their containers."""
    if isinstance(module, nn.Linear):
        return module.in_features + module.out_features
    return module.in_channels + module.out_channels if isinstance(module, nn.Conv1d) else 0


@torch.no_grad()
def hybrid_memory_traffic(memory: HybridMemory) -> Iterator[tuple[str, int]]:
    """Yield the traffic of the two memories and their mixer."""
    x = example_token(memory)
    fw, kv = example_outputs(memory, x)
    outputs, mixed = [output for output in (fw, kv) if output is not None], memory.mixer(x, fw, kv)
    moved = sum(output.numel() for output in outputs) + mixed.numel() + memory.width
    yield "mixer", 0 if any(mixed is output for output in outputs) else moved
    if memory.attention is not None and memory.positions is not None:
        size = memory.sizes["kv"]
        yield "softmax", (size.heads + size.groups) * (size.key_dim + size.value_dim)
        q, v = (x.new_zeros(1, size.heads, 1, dim) for dim in (size.key_dim, size.value_dim))
        if numbers := attention_traffic(memory.attention, x, q, v):
            yield "attention", numbers
        yield "positions", 0 if memory.positions.rotate(q, example_position(q)) is q else 4 * q.numel()
    if memory.update_rule is not None:
        size, writes = memory.sizes["fw"], memory.writes
        gates = count_gate_numbers(memory.update_rule.gates(x))
        yield "update_rule", memory.width + gates
        heads = size.heads + writes * size.groups  # of the query and of the keys
        yield "feature_map", heads * (size.key_dim + memory.features)
        yield "fast_weights", heads * (memory.features + size.value_dim) + gates


def normalized_channels(model: SequenceModel, name: str) -> int:
    """Return the channels of a token that a norm reads: those of the stream, or of the outputs of the memories."""
    parent, _, last = name.rpartition(".")
    memory = model.get_submodule(parent)
    if last != "norm" or not isinstance(memory, HybridMemory):
        return model.config.width
    return memory.output_size.channels  # over all heads


def attention_traffic(attention: Attention, x: Tensor, q: Tensor, v: Tensor) -> int:
    """Return the numbers that an attention component moves for one token; q is its query and its key."""
    features, log_forget = attention.key_features(x), attention.log_forget(x)
    inputs = AttentionInputs(q, q, v, features, example_position(q) + 1)
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
