"""What the two memories compute, counted from shapes: 2 FLOPs per multiply-add of a matrix product or a convolution.

That is the convention of torch's FlopCounterMode.  Element-wise work (activations, norms, gates, softmax itself) and
looking up an embedding count nothing.  Counted is what is computed, also where a mask then hides it.

    softmax, per head, queries x keys       forward 2 T S (K + V)
      in one fused operation                backward 2 T S (3 K + 2 V): it computes the scores a second time
      in bands                              backward twice the forward, as of every product
    fast weights, per head and chunk of C tokens and L = C * writes writes
      where something is erased             k k^T 2 L^2 K,   T^-1 [V, K] 2 L^2 (V + K),   W S 2 L K V
      always                                k^T u 2 L K V,   q S 2 C K V,   q k^T 2 C L K,   A u 2 C L V

T^-1 comes from substitution, L^3 per chunk, which FlopCounterMode does not see and is left out here too.  The gradients
of a scan are taken for twice its forward; where keys are as long as a chunk, autograd on the algorithm written out
comes to within a tenth of that.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hqlt_lab.ops.attention import BAND, form
from hqlt_lab.ops.schedule import Schedule


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
    how, span = form(schedule, queries, keys), schedule.span
    if how == "bands":
        assert span is not None
        wide = max(span, BAND)
        scores = heads * -(-queries // wide) * wide * (wide + span - 1)
        return of_products(2 * scores * (key + value))
    if how == "blocks":
        assert span is not None
        queries, keys = -(-queries // span) * span, span
    scores = heads * queries * keys
    return Flops(2 * scores * (key + value), 2 * scores * (3 * key + 2 * value))


def scan_flops(tokens: int, rows: int, heads: int, key: int, value: int, writes: int, chunk: int, erase: bool) -> int:
    """Of the chunk-parallel scan, forward; the last chunk is filled up, and a read that is masked is computed."""
    chunks, size = chunks_of(tokens, writes, chunk)
    new = size * writes
    reads = size * key * value + size * new * (key + value)
    written = new * key * value
    erased = new * new * (2 * key + value) + new * key * value if erase else 0
    return 2 * rows * heads * chunks * (reads + written + erased)


def scan_backward_flops(
    tokens: int, rows: int, heads: int, key: int, value: int, writes: int, chunk: int, erase: bool
) -> int:
    """Of its gradients: two products for each one of the forward."""
    return 2 * scan_flops(tokens, rows, heads, key, value, writes, chunk, erase)


def chunks_of(tokens: int, writes: int, chunk: int) -> tuple[int, int]:
    """How many chunks, and how many tokens in each: as even as can be, `chunk` writes at most or those of a token."""
    pieces = -(-tokens // max(chunk // writes, 1))
    size = -(-tokens // pieces)
    return -(-tokens // size), size
