"""What each part of a model computes: a row of some length, its gradients, and the one token after it.

A linear map is 2 FLOPs per weight and token forward and twice that backward; that its input needs a gradient too is
taken for granted, as it does behind an embedding.  The two memories are counted from shapes (`ops/flops.py`).  A part
(rule, mixer, feature map, positions) is called on one token and torch counts, so that a part from outside is counted
whatever it is made of.

On the meta device, where plans are made, parts that are written alike are counted once, on one with numbers in it: for
a single token that is quicker than torch's meta operators, the first of which loads all of torch.compile.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from hqlt_lab.components.update_rules._base import StepRule, UpdateRule
from hqlt_lab.model.memory import HybridMemory
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.ops.flops import Flops, counted, of_products, softmax_flops
from hqlt_lab.ops.steps import Course, each, precise
from hqlt_lab.registry import build

PROJECTIONS = ("to_q", "to_k", "to_v", "to_out", "to_gate")
NORMS = ("norm", "memory_norm", "mlp_norm")
NAMES = dict.fromkeys(PROJECTIONS, "projections") | dict.fromkeys(NORMS, "norms") | {"embed": "embedding"}
MAPS = ("projections", "convolutions", "mlp", "head")  # each of their weights is used once per token


T = TypeVar("T")
_known: dict[tuple[Any, ...], Any] = {}  # what was counted on the meta device


class Work(NamedTuple):
    """FLOPs of one part for one row."""

    part: str
    forward: int
    backward: int
    decoding: int  # the next token, forward


def work(model: SequenceModel, length: int) -> Iterator[Work]:
    """Everything that is computed."""
    yield from (per_token(part_of(name), 2 * weights, length) for name, weights in maps(model))
    if (positions := model.positions) is not None:
        x = token(model.memories[0])
        yield per_token("positions", counted(lambda: positions.embed(x, place(x))), length)
    for memory, layers in alike(model):
        for part, *flops in of_memory(memory, length):
            yield Work(part, *(layers * count for count in flops))


def alike(model: SequenceModel) -> list[tuple[HybridMemory, int]]:
    """The memories that differ, each with how many layers have one like it: these need not be counted one by one."""
    told = [repr(memory.specs) for memory in model.memories]
    one_of = dict(zip(told, model.memories, strict=True))
    return [(one_of[parts], layers) for parts, layers in Counter(told).items()]


def of_memory(memory: HybridMemory, length: int) -> Iterator[Work]:
    """One layer's."""
    yield per_token("mixer", of_mixer(memory), length)
    if memory.positions is not None:
        yield from of_softmax(memory, length)
    if memory.update_rule is not None:
        yield from of_fast_weights(memory, length)


def once(memory: HybridMemory, kind: str, count: Callable[[Any], T], *more: Any) -> T:
    """What a part computes; `more` is what else it depends on.  A live part may have been changed: it is asked anew."""
    part, weight = getattr(memory, kind), memory.to_q.weight
    if not weight.is_meta:
        return count(part)
    alike = (kind, type(part), repr(memory.specs[kind]), *weight.shape, memory.heads, *more)
    if alike not in _known:
        _known[alike] = count(with_numbers(memory, kind))
    found: T = _known[alike]
    return found


def with_numbers(memory: HybridMemory, kind: str) -> Any:
    """A part like that of a layer on the meta device, made here; what others draw stays the same."""
    with torch.random.fork_rng(devices=[]):
        return build(kind, memory.specs[kind], width=memory.to_q.in_features, heads=memory.heads)


def part_of(name: str) -> str:
    """The part that a parameter or a module belongs to: blocks.0.memory.to_q.weight is one of the projections."""
    words = [word for word in name.split(".") if word not in ("blocks", "memory") and not word.isdigit()]
    return NAMES.get(words[0], words[0]) if words else ""


def maps(model: SequenceModel) -> Iterator[tuple[str, int]]:
    """The linear maps and convolutions of layer, MLP and head, with how many weights each has."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Conv1d) and part_of(name) in MAPS:
            yield name, module.weight.numel()


def per_token(part: str, forward: int, length: int) -> Work:
    """The same for every token."""
    return Work(part, *of_products(forward * length), forward)


def of_mixer(memory: HybridMemory) -> int:
    """One token."""
    x = at_hand(token(memory))
    answer = heads(memory, x)
    fw, kv = (answer if name in memory.mixer.reads else None for name in ("fw", "kv"))
    return once(memory, "mixer", lambda mixer: counted(lambda: mixer(x, fw, kv)))


def of_softmax(memory: HybridMemory, length: int) -> Iterator[Work]:
    """The products with keys and values, and what it takes to place queries and keys."""
    keys = 1 + (length if memory.room is None else memory.room)  # the ring is as long as it ever gets, from the start
    u = heads(memory, at_hand(token(memory)))
    shape = (memory.heads, u.shape[-1], u.shape[-1])
    decoding = softmax_flops(memory.schedule, 1, keys, *shape).forward
    yield Work("softmax", *softmax_flops(memory.schedule, length, length, *shape), decoding)
    turn = once(memory, "positions", lambda positions: counted(lambda: positions.turn(u, place(u))))
    yield Work("positions", *of_products(2 * length * turn), (1 + keys) * turn)


def of_fast_weights(memory: HybridMemory, length: int) -> Iterator[Work]:
    """The rule's gates, the features of queries and keys, and the scan."""
    rule: Any = memory.update_rule
    x, steps = at_hand(token(memory)), memory.schedule.hold or 1  # with hold, a token repeats the steps of its stretch
    q = precise(heads(memory, x))
    yield per_token("update_rule", once(memory, "update_rule", lambda part: counted(lambda: part.gates(x))), length)
    feature = once(memory, "feature_map", lambda part: counted(lambda: part(q)))
    yield Work("feature_map", *of_products((1 + rule.writes) * length * feature), (1 + rule.writes * steps) * feature)
    training, decoding = scanned(memory, length, empty=True), scanned(memory, steps, empty=False)
    yield Work("fast_weights", *training, decoding.forward)


def scanned(memory: HybridMemory, tokens: int, empty: bool) -> Flops:
    """The scan of that many tokens, from nothing or from a state."""
    rule: Any = memory.update_rule
    alone = tokens > 1 and brings_its_scan(rule)  # whatever it takes: on the meta device it takes no memory
    x = token(memory) if alone else at_hand(token(memory))
    q, course = precise(heads(memory, x)), Course(memory.schedule.hold)
    state = None if empty else q.new_zeros(1, memory.heads, q.shape[-1], rule.value_channels(q.shape[-1]))
    if alone:
        return of_scan(rule, x, q, tokens, state, course)
    given = (x, q, tokens, state, course)
    return once(memory, "update_rule", lambda part: of_scan(part, *given), tokens, empty, course.hold)


def brings_its_scan(rule: Any) -> bool:
    """Whether how it scans is its own affair, and so is what that takes."""
    return type(rule).flops is UpdateRule.flops and type(rule).scan is not StepRule.scan


def of_scan(rule: Any, x: Tensor, q: Tensor, tokens: int, state: Tensor | None, course: Course) -> Flops:
    """That many tokens; all of them are the one token there is, which takes no memory."""
    with torch.no_grad():
        gates = rule.gates(x)
    k = q.expand(-1, -1, tokens * rule.writes, -1)
    gates = each(lambda gate: gate[:, :, :1].expand(-1, -1, tokens * rule.writes), gates)
    return rule.flops(q.expand(-1, -1, tokens, -1), k, k, gates, state, course)


def token(memory: HybridMemory) -> Tensor:
    """One token of the stream, [1, 1, width], where the layer's weights are."""
    return memory.to_q.weight.new_zeros(1, 1, memory.to_q.in_features)


def at_hand(x: Tensor) -> Tensor:
    """The same with numbers in it."""
    return torch.zeros(x.shape, dtype=x.dtype) if x.is_meta else x


def place(u: Tensor) -> Tensor:
    """Where that token stands."""
    return torch.zeros(1, 1, dtype=torch.long, device=u.device)


def heads(memory: HybridMemory, x: Tensor) -> Tensor:
    """As a query of each head, [1, H, 1, K]."""
    return memory.split(x, 1)
