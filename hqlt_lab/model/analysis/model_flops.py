"""FLOPs of each component of a model: for a row of some length, for its gradients, and for decoding the next token.

A linear map takes 2 FLOPs per weight and token forward, and twice that backward; its input is assumed to need a
gradient, as it does after an embedding.  The two memories are counted from shapes (`ops/flops.py`).  Components (rule,
attention, mixer, feature map, positions) are called on one token while torch counts, so a user's component is counted
whatever it computes.

For a model on the meta device, such as when planning a study, equal components are counted once, on a copy with real
values.  For a single token that is faster than torch's meta operators, the first of which loads all of torch.compile.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from hqlt_lab.components.attention._base import Attention, AttentionInputs
from hqlt_lab.components.update_rules._base import StepRule, UpdateRule
from hqlt_lab.model.hybrid_memory import HybridMemory
from hqlt_lab.model.memory_size_config import MemorySize
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.ops.flops import Flops, measure_flops, product_flops, softmax_flops
from hqlt_lab.ops.gates import ScanContext, map_gates
from hqlt_lab.ops.precision import at_least_float32
from hqlt_lab.registry import build

PROJECTIONS = ("to_q", "to_k", "to_v", "to_out", "to_gate", "output_maps")
NORMS = ("norm", "memory_norm", "mlp_norm")
COMPONENT_NAMES = dict.fromkeys(PROJECTIONS, "projections") | dict.fromkeys(NORMS, "norms") | {"embed": "embedding"}
CONTAINERS = ("blocks", "memory", "projections", "fw", "kv")  # names of modules that only hold others
LINEAR_COMPONENTS = ("projections", "convolutions", "mlp", "head")  # each of their weights is used once per token


T = TypeVar("T")
_flops_cache: dict[tuple[Any, ...], Any] = {}  # counts of components on the meta device


class ComponentFlops(NamedTuple):
    """FLOPs of one component for one row."""

    component: str
    forward: int
    backward: int
    decoding: int  # the next token, forward


def component_flops(model: SequenceModel, length: int) -> Iterator[ComponentFlops]:
    """Yield the FLOPs of all components; the same component may occur several times.

    The blocks read the meta tokens too.
    """
    inner_length = length + model.config.meta_tokens
    for name, weights in linear_maps(model):
        component = component_of_name(name)
        yield per_token_flops(component, 2 * weights, length if component == "head" else inner_length)
    if (positions := model.positions) is not None:
        x = example_token(model.memories[0])
        embedding = measure_flops(lambda: positions.embed(x, example_position(x)))
        yield per_token_flops("positions", embedding, inner_length)
    for memory, layers in distinct_memories(model):
        for component, *flops in memory_flops(memory, inner_length):
            yield ComponentFlops(component, *(layers * count for count in flops))


def distinct_memories(model: SequenceModel) -> list[tuple[HybridMemory, int]]:
    """Return one memory per distinct composition, with the number of layers that have it, to count each only once."""
    compositions = [repr(memory.component_specs) for memory in model.memories]
    representative = dict(zip(compositions, model.memories, strict=True))
    return [(representative[composition], layers) for composition, layers in Counter(compositions).items()]


def memory_flops(memory: HybridMemory, length: int) -> Iterator[ComponentFlops]:
    """Yield the FLOPs of the components of one layer, without its linear maps."""
    yield per_token_flops("mixer", mixer_flops(memory), length)
    if memory.positions is not None:
        yield from softmax_memory_flops(memory, length)
    if memory.update_rule is not None:
        yield from fast_weight_flops(memory, memory.update_rule, length)


def count_cached(memory: HybridMemory, kind: str, counter: Callable[[Any], T], *extra_key: Any) -> T:
    """Apply `counter` to the component of that kind, with a cache for the meta device.

    `extra_key` is what else the count depends on.  Components with real values may have been modified, so their counts
    are not cached.
    """
    component = getattr(memory, kind)
    if not memory.to_out.weight.is_meta:
        return counter(component)
    arguments = memory.component_arguments(kind)
    key = (kind, type(component), repr(memory.component_specs[kind]), *arguments.values(), *extra_key)
    if key not in _flops_cache:
        _flops_cache[key] = counter(build_materialized(memory, kind))
    count: T = _flops_cache[key]
    return count


def build_materialized(memory: HybridMemory, kind: str) -> Any:
    """Build a copy with real values of a component on the meta device, without advancing the global random state."""
    with torch.random.fork_rng(devices=[]):
        return build(kind, memory.component_specs[kind], **memory.component_arguments(kind))


def component_of_name(name: str) -> str:
    """Return the component of a parameter or module, such as "projections" for blocks.0.memory.to_q.weight."""
    segments = [segment for segment in name.split(".") if segment not in CONTAINERS and not segment.isdigit()]
    return COMPONENT_NAMES.get(segments[0], segments[0]) if segments else ""


def linear_maps(model: SequenceModel) -> Iterator[tuple[str, int]]:
    """Yield name and number of weights of the linear maps and convolutions of layers, MLPs and head."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Conv1d) and component_of_name(name) in LINEAR_COMPONENTS:
            yield name, module.weight.numel()


def per_token_flops(component: str, forward: int, length: int) -> ComponentFlops:
    """Return the FLOPs of a component that computes the same for every token, from those of one token."""
    return ComponentFlops(component, *product_flops(forward * length), forward)


def mixer_flops(memory: HybridMemory) -> int:
    """Return the FLOPs of the mixer for one token."""
    x = zeros_if_meta(example_token(memory))
    fw, kv = example_outputs(memory, x)
    return count_cached(memory, "mixer", lambda mixer: measure_flops(lambda: mixer(x, fw, kv)))


def softmax_memory_flops(memory: HybridMemory, length: int) -> Iterator[ComponentFlops]:
    """Yield the FLOPs of the attention component, of softmax, and of applying positions to queries and keys."""
    # decoding always reads a cache of full capacity, also at the start of a sequence
    cached = length if memory.kv_cache_capacity is None else memory.kv_cache_capacity
    keys = 1 + cached + memory.schedule.limited_sinks
    x, size = zeros_if_meta(example_token(memory)), memory.sizes["kv"]
    count = partial(attention_component_flops, x=x, size=size)
    token, two_keys = (count_cached(memory, "attention", partial(count, keys=number), number) for number in (1, 2))
    # a component treats each key by itself, so that its FLOPs grow linearly with the number of keys
    decoding = token.flops + (keys - 1) * (two_keys.flops - token.flops)
    yield ComponentFlops("attention", *product_flops(length * token.flops), decoding)
    sizes = (size.heads, token.key_dim, token.value_dim, token.has_decay)
    decoding_flops = softmax_flops(memory.schedule, 1, keys, *sizes).forward
    yield ComponentFlops("softmax", *softmax_flops(memory.schedule, length, length, *sizes), decoding_flops)
    u = x.new_zeros(1, size.heads, 1, token.key_dim)
    rotation = count_cached(
        memory,
        "positions",
        lambda positions: measure_flops(lambda: positions.rotate(u, example_position(u))),
        token.key_dim,
    )
    yield ComponentFlops("positions", *product_flops(2 * length * rotation), (1 + keys) * rotation)


class AttentionComponentFlops(NamedTuple):
    """FLOPs of an attention component for one query and some keys, and what it makes of queries, keys and values."""

    flops: int
    key_dim: int
    value_dim: int
    has_decay: bool


def attention_component_flops(attention: Attention, x: Tensor, size: MemorySize, keys: int) -> AttentionComponentFlops:
    """Return the FLOPs of the component for the token x, which is also each of `keys` keys."""
    q = x.new_zeros(1, size.heads, 1, size.key_dim)
    k, v = (x.new_zeros(1, size.heads, keys, dim) for dim in (size.key_dim, size.value_dim))
    results: dict[str, Any] = {}

    def run() -> None:
        features, log_forget = attention.key_features(x), attention.log_forget(x)
        if features is not None:
            features = features.expand(-1, -1, keys, -1)
        inputs = attention.transform(x, AttentionInputs(q, k, v, features, example_position(q) + keys))
        attention.finish(x, inputs.v[:, :, :1])
        results.update(key_dim=inputs.k.shape[3], value_dim=inputs.v.shape[3], has_decay=log_forget is not None)

    return AttentionComponentFlops(measure_flops(run), **results)


def fast_weight_flops(memory: HybridMemory, rule: UpdateRule, length: int) -> Iterator[ComponentFlops]:
    """Yield the FLOPs of the gates of the rule, of the features of queries and keys, and of the scan."""
    x, size = zeros_if_meta(example_token(memory)), memory.sizes["fw"]
    decoding_steps = memory.schedule.hold or 1  # with hold, decoding a token replays the steps of its hold block
    gates = count_cached(memory, "update_rule", lambda rule: measure_flops(lambda: rule.gates(x)))
    yield per_token_flops("update_rule", gates, length)
    query_features, key_features = (feature_map_flops(memory, x, heads) for heads in (size.heads, size.groups))
    key_features *= rule.writes
    training_features = product_flops((query_features + key_features) * length)
    yield ComponentFlops("feature_map", *training_features, query_features + decoding_steps * key_features)
    training = memory_scan_flops(memory, rule, length, starts_empty=True)
    decoding = memory_scan_flops(memory, rule, decoding_steps, starts_empty=False)
    yield ComponentFlops("fast_weights", *training, decoding.forward)


def feature_map_flops(memory: HybridMemory, x: Tensor, heads: int) -> int:
    """Return the FLOPs of the features of a query or key in that many heads; x is an example token."""
    u = at_least_float32(x.new_zeros(1, heads, 1, memory.sizes["fw"].key_dim))
    return count_cached(memory, "feature_map", lambda feature_map: measure_flops(lambda: feature_map(u)), heads)


def memory_scan_flops(memory: HybridMemory, rule: UpdateRule, tokens: int, starts_empty: bool) -> Flops:
    """Return the FLOPs of a scan of that many tokens, from an empty memory or from a state."""
    # a custom scan is run on all tokens; on the meta device, where it allocates nothing
    runs_custom_scan = tokens > 1 and has_own_scan(rule)
    x = example_token(memory) if runs_custom_scan else zeros_if_meta(example_token(memory))
    size, context = memory.sizes["fw"], ScanContext(memory.schedule.hold)
    v = at_least_float32(x.new_zeros(1, size.heads, 1, size.value_dim))
    k = v.new_zeros(*v.shape[:-1], memory.features)
    state = None if starts_empty else v.new_zeros(1, size.heads, k.shape[-1], rule.value_channels(size.value_dim))
    if runs_custom_scan:
        return rule_scan_flops(rule, x, k, v, tokens, state, context)

    def count(component: UpdateRule) -> Flops:
        return rule_scan_flops(component, x, k, v, tokens, state, context)

    return count_cached(memory, "update_rule", count, tokens, starts_empty, context.hold, k.shape[-1])


def has_own_scan(rule: UpdateRule) -> bool:
    """Return whether the rule has its own scan without its own FLOP count, so that the scan must be run to count it."""
    has_base_count = type(rule).count_flops in (UpdateRule.count_flops, StepRule.count_flops)
    return has_base_count and type(rule).scan is not StepRule.scan


def rule_scan_flops(
    rule: UpdateRule, x: Tensor, k: Tensor, v: Tensor, tokens: int, state: Tensor | None, context: ScanContext
) -> Flops:
    """Return the FLOPs of a scan of that many tokens, all views of one token, which takes no memory."""
    with torch.no_grad():
        gates = rule.gates(x)
    q = k.expand(-1, -1, tokens, -1)
    k, v = (u.expand(-1, -1, tokens * rule.writes, -1) for u in (k, v))
    gates = map_gates(lambda gate: gate[:, :, :1].expand(-1, -1, tokens * rule.writes, *gate.shape[3:]), gates)
    return rule.count_flops(q, k, v, gates, state, context)


def example_token(memory: HybridMemory) -> Tensor:
    """Return one token of the stream [1, 1, width], on the device of the layer's weights."""
    return memory.to_out.weight.new_zeros(1, 1, memory.width)


def zeros_if_meta(x: Tensor) -> Tensor:
    """Return zeros of the same shape if x is on the meta device, else x."""
    return torch.zeros(x.shape, dtype=x.dtype) if x.is_meta else x


def example_position(u: Tensor) -> Tensor:
    """Return the position [1, 1] of the example token."""
    return torch.zeros(1, 1, dtype=torch.long, device=u.device)


def example_outputs(memory: HybridMemory, x: Tensor) -> list[Tensor | None]:
    """Return outputs of the two memories [1, H, 1, V] as the mixer gets them; None for a memory that it does not read.

    x is an example token.
    """
    return [
        x.new_zeros(1, memory.mixed_heads(name), 1, memory.output_size.value_dim) if name in memory.sizes else None
        for name in ("fw", "kv")
    ]
