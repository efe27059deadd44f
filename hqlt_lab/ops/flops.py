"""What the two memories compute, counted from shapes: 2 FLOPs per multiply-add of a matrix product or a convolution.

That is the convention of torch's FlopCounterMode.  Element-wise work (activations, norms, gates, softmax itself) and
looking up an embedding count nothing.  Counted is what is computed, also where a mask then hides it.

    softmax, per head, queries x keys     forward 2 T S (K + V), backward 2 T S (3 K + 2 V): the scores a second time
    fast weights, per head and chunk of C tokens and L = C * writes writes; those with S not where it is empty
      forward     q S 2 C K V,   q k^T 2 C L K,   A u 2 C L V,   k^T u 2 L K V
        erasing   k k^T 2 L^2 K,   k S 2 L K V,   T^-1 and N u 2 L^2 V each
      backward    of q S twice, of k^T u twice, of A u twice, of q k^T three times
        erasing   of k S twice, 2 L^2 V and 2 L^2 K twice each

T^-1 comes from substitution, about L^3 per chunk, which FlopCounterMode does not see and is left out here too.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hqlt_lab.ops.attention import form, scores_in_bands
from hqlt_lab.ops.cross_entropy import in_chunks, in_chunks_backward
from hqlt_lab.ops.pieces import Cuts
from hqlt_lab.ops.scan import scan, scan_backward
from hqlt_lab.ops.schedule import Schedule
from hqlt_lab.ops.swiglu import in_blocks, in_blocks_backward
from hqlt_lab.ops.windowed import bands, bands_backward


class Flops(NamedTuple):
    """There and back."""

    forward: int
    backward: int


def of_products(forward: int) -> Flops:
    """A product has two gradients, each a product of its size, where both of its factors need one."""
    return Flops(forward, 2 * forward)


class Counter(TorchDispatchMode):
    """Adds up torch's own formulas: FlopCounterMode, without the seconds in which it loads torch.compile."""

    def __init__(self) -> None:
        from torch.utils.flop_counter import flop_registry  # a quarter of a second that training has no use for

        teach_torch()
        super().__init__()
        self.formulas, self.total = flop_registry, 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if formula := self.formulas.get(func._overloadpacket):
            self.total += formula(*args, **(kwargs or {}), out_val=result)
        return result


def counted(work: Callable[[], Any]) -> int:
    """What torch counts in a call; nothing is kept for a gradient."""
    with torch.no_grad(), Counter() as counter:
        work()
    return counter.total


def softmax_flops(schedule: Schedule, queries: int, keys: int, heads: int, key: int, value: int) -> Flops:
    """Of `attend` on one row: keys of length `key`, values of length `value`, in the form that it would choose."""
    how, span, scores = form(schedule, queries, keys), schedule.span, queries * keys
    if span is not None and how == "blocks":
        scores = -(-queries // span) * span * span
    if span is not None and how == "bands":
        scores = scores_in_bands(queries, span)
    return attention_flops(heads * scores, key, value)


def attention_flops(scores: int, key: int, value: int) -> Flops:
    """Where the scores are computed again backwards, as every form does that keeps none of them."""
    return Flops(2 * scores * (key + value), 2 * scores * (3 * key + 2 * value))


def scan_flops(cuts: Cuts, rows: int, key: int, value: int, erase: bool, empty: bool) -> int:
    """Of the chunk-parallel scan, forward; `empty`: no state came with it."""
    total = 0
    for number, (piece, tokens) in enumerate(zip(cuts.pieces, cuts.sizes, strict=True)):
        new = tokens * cuts.writes
        total += new * key * value
        total += tokens * key * value * (not empty or piece.opened_by > 0)
        total += tokens * new * (key + value) * piece.inside
        total += (new * new * (key + 2 * value) + new * key * value * (not empty or number > 0)) * erase
    return 2 * rows * total


def scan_backward_flops(cuts: Cuts, rows: int, key: int, value: int, erase: bool, empty: bool, last: bool) -> int:
    """Of its gradients; `last`: the last state has one too."""
    total, final = 0, len(cuts.pieces) - 1
    for number, (piece, tokens) in enumerate(zip(cuts.pieces, cuts.sizes, strict=True)):
        new, before = tokens * cuts.writes, not empty or number > 0
        total += 2 * new * key * value * (last or number < final)
        total += 2 * tokens * key * value * (not empty or piece.opened_by > 0)
        total += tokens * new * (3 * key + 2 * value) * piece.inside
        total += (new * new * 2 * (key + value) + 2 * new * key * value * before) * erase
    return 2 * rows * total


def teach_torch() -> None:
    """Let torch's FlopCounterMode know the lab's operators; it is told once."""
    from torch.utils.flop_counter import flop_registry, register_flop_formula

    formulas = (
        (scan, of_scan),
        (scan_backward, of_scan_backward),
        (bands, of_bands),
        (bands_backward, of_bands_backward),
        (in_blocks, of_swiglu),
        (in_blocks_backward, of_swiglu_backward),
        (in_chunks, of_cross_entropy),
        (in_chunks_backward, of_cross_entropy_backward),
    )
    for operator, formula in formulas:
        packet = operator._opoverload._overloadpacket
        if packet not in flop_registry:
            register_flop_formula(packet)(formula)


def of_scan(*shapes: Any, **__: Any) -> int:
    q, k, v, _, erase, _, state, _, hold, chunk, *_rest = shapes
    cuts = Cuts.of(q, k, hold, chunk)
    return scan_flops(cuts, q[0] * q[1], k[3], v[3], erase is not None, state is None)


def of_scan_backward(*shapes: Any, **__: Any) -> int:
    (_, by_last, q, k, v, _, erase), (hold, chunk, _, empty) = shapes[:7], shapes[-4:]
    cuts = Cuts.of(q, k, hold, chunk)
    return scan_backward_flops(cuts, q[0] * q[1], k[3], v[3], erase is not None, empty, by_last is not None)


def of_bands(q: Any, k: Any, v: Any, place: Any, wide: int, *_: Any, **__: Any) -> int:
    return in_bands(q, k, v, wide).forward


def of_bands_backward(*shapes: Any, **__: Any) -> int:
    _, _, q, k, v, _, wide, *_rest = shapes
    return in_bands(q, k, v, wide).backward


def in_bands(q: Any, k: Any, v: Any, wide: int) -> Flops:
    return attention_flops(q[0] * q[1] * q[2] * (wide + k[2] - q[2]), q[3], v[3])


def of_swiglu(x: Any, gate: Any, *_: Any, **__: Any) -> int:
    return 2 * x[0] * 3 * gate[0] * gate[1]


def of_swiglu_backward(by_y: Any, x: Any, gate: Any, *_: Any, **__: Any) -> int:
    """As of three linear maps; that two of them are computed again is a matter of this one way to do it."""
    return 2 * of_swiglu(x, gate)


def of_cross_entropy(x: Any, weight: Any, *_: Any, **__: Any) -> int:
    return 2 * x[0] * weight[0] * weight[1]


def of_cross_entropy_backward(by_losses: Any, x: Any, weight: Any, *rest: Any, **__: Any) -> int:
    """As of one linear map, as far as its gradients are asked for; the logits' second time is not counted either."""
    return sum(rest[-2:]) * of_cross_entropy(x, weight)
