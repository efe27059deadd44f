"""FLOPs of the operators, counted from shapes: 2 FLOPs per multiply-add of a matrix product or a convolution.

This is the convention of torch's FlopCounterMode.  Element-wise work (activations, norms, gates, softmax itself) and
embedding lookups count as 0.  Products that a mask hides afterwards are counted, since they are computed.

    softmax, per head, T queries, S keys  forward 2 T S (K + V), backward 2 T S (3 K + 2 V): the scores are recomputed;
                                          with forget gates K and V include extra channels (`ops.attention`)
    fast weights, per head and chunk of C tokens with L = C * writes writes; products with an empty state are omitted
      forward     q S 2 C K V,   q k^T 2 C L K,   A u 2 C L V,   k^T u 2 L K V
        erasing   k k^T 2 L^2 K,   k S 2 L K V,   (I + epsilon N)^-1 and N u 2 L^2 V each
      backward    of q S twice, of k^T u twice, of A u twice, of q k^T three times
        erasing   of k S twice, 2 L^2 V and 2 L^2 K twice each
        decaying  the gradient of the log-keeps: 2 C L^2, and if the rule erases k k^T 2 L^2 K; with `hold` or several
                  writes the sums of lookups are separate, 2 L^3

The inverse of I + epsilon N is computed by substitution in diagonal blocks, which FlopCounterMode does not count, and
products between the blocks, which it does.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hqlt_lab.ops.attention.forget_gate_channels import BAND_CHANNELS, count_causal_channels
from hqlt_lab.ops.attention.scheduled_softmax import count_band_scores, count_sink_scores, select_form
from hqlt_lab.ops.attention.sliding_window_cpu import banded_attention_backward_op, banded_attention_op
from hqlt_lab.ops.fused.gated_mlp import swiglu_backward_op, swiglu_op
from hqlt_lab.ops.fused.linear_cross_entropy import cross_entropy_backward_op, cross_entropy_op
from hqlt_lab.ops.memory_schedule import Schedule
from hqlt_lab.ops.scan.channel_gate_chunk import BlockLayout
from hqlt_lab.ops.scan.channel_gate_scan import channel_gate_scan_backward_op, channel_gate_scan_op
from hqlt_lab.ops.scan.chunk_layout import ChunkLayout
from hqlt_lab.ops.scan.chunked import scan_backward_op, scan_op
from hqlt_lab.ops.scan.triangular_inverse import count_inverse_products


class Flops(NamedTuple):
    """FLOPs of the forward and the backward pass."""

    forward: int
    backward: int


def product_flops(forward: int) -> Flops:
    """Return the FLOPs of products whose two factors both need a gradient, each a product of the same size."""
    return Flops(forward, 2 * forward)


class FlopCounter(TorchDispatchMode):
    """Add up torch's FLOP formulas.  Unlike FlopCounterMode it does not load torch.compile, which takes seconds."""

    def __init__(self) -> None:
        from torch.utils.flop_counter import flop_registry  # takes a quarter of a second, and training does not use it

        register_flop_formulas()
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


def measure_flops(function: Callable[[], Any]) -> int:
    """Call the function without gradients and return the FLOPs that torch counts."""
    with torch.no_grad(), FlopCounter() as counter:
        function()
    return counter.total


def softmax_flops(
    schedule: Schedule, queries: int, keys: int, heads: int, key_dim: int, value_dim: int, has_decay: bool = False
) -> Flops:
    """Return the FLOPs of `attend` on one row, in the form that it selects for this schedule and these lengths."""
    form, span, scores = select_form(schedule, queries, keys), schedule.attention_span, queries * keys
    if span is not None and form == "bands":
        scores = count_band_scores(queries, span)
        if schedule.limited_sinks:  # computed without an operator of its own, so that the scores are saved
            scores += count_sink_scores(schedule, queries, keys)
            return product_flops(2 * heads * scores * (key_dim + value_dim))
        return attention_flops(heads * scores, key_dim + BAND_CHANNELS * has_decay, value_dim)
    if form == "dense" and has_decay:  # torch's fused kernels have no gradient by a mask, so the scores are saved
        return product_flops(2 * heads * scores * (key_dim + value_dim))
    if form in ("causal", "blocks"):
        length = queries if form == "causal" or span is None else span
        scores = -(-queries // length) * length * length
        key_dim += count_causal_channels(length) * has_decay
        value_dim = max(value_dim, key_dim) if has_decay else value_dim
    return attention_flops(heads * scores, key_dim, value_dim)


def attention_flops(scores: int, key_dim: int, value_dim: int) -> Flops:
    """Return the FLOPs of attention with this many scores, which the backward pass computes again."""
    return Flops(2 * scores * (key_dim + value_dim), 2 * scores * (3 * key_dim + 2 * value_dim))


def scan_flops(
    chunk_layout: ChunkLayout, rows: int, key_dim: int, value_dim: int, erases: bool, starts_empty: bool
) -> int:
    """Return the forward FLOPs of the chunk-parallel scan.  `starts_empty`: there is no initial state."""
    total = 0
    for index, (span, tokens) in enumerate(zip(chunk_layout.chunk_spans, chunk_layout.chunk_tokens, strict=True)):
        writes = tokens * chunk_layout.writes
        total += writes * key_dim * value_dim
        total += tokens * key_dim * value_dim * (not starts_empty or span.state_from > 0)
        total += tokens * writes * (key_dim + value_dim) * span.intra_chunk
        total += (
            writes * writes * (key_dim + 2 * value_dim)
            + writes * key_dim * value_dim * (not starts_empty or index > 0)
            + count_inverse_products(writes)
        ) * erases
    return 2 * rows * total


def scan_backward_flops(
    chunk_layout: ChunkLayout,
    rows: int,
    key_dim: int,
    value_dim: int,
    erases: bool,
    starts_empty: bool,
    *,
    decays: bool,
    has_last_state_grad: bool,
) -> int:
    """Return the backward FLOPs of the chunk-parallel scan.  `has_last_state_grad`: the last state has a gradient."""
    total, last_index = 0, len(chunk_layout.chunk_spans) - 1
    for index, (span, tokens) in enumerate(zip(chunk_layout.chunk_spans, chunk_layout.chunk_tokens, strict=True)):
        writes, has_initial_state = tokens * chunk_layout.writes, not starts_empty or index > 0
        total += 2 * writes * key_dim * value_dim * (has_last_state_grad or index < last_index)
        total += 2 * tokens * key_dim * value_dim * (not starts_empty or span.state_from > 0)
        total += tokens * writes * (3 * key_dim + 2 * value_dim) * span.intra_chunk
        lookup = 2 * writes * key_dim * value_dim * has_initial_state
        total += (writes * writes * 2 * (key_dim + value_dim) + lookup) * erases
        total += log_keep_products(chunk_layout, tokens, key_dim, erases, span.intra_chunk) * decays
    return 2 * rows * total


def channel_gate_scan_flops(
    chunk_layout: ChunkLayout, rows: int, key_dim: int, value_dim: int, lookup_stride: int
) -> Flops:
    """Return the FLOPs of the scan with channels.  `lookup_stride`: see `ops.scan.channel_gate_chunk.BlockLayout`."""
    forward = backward = 0
    for span, tokens in zip(chunk_layout.chunk_spans, chunk_layout.chunk_tokens, strict=True):
        hold = chunk_layout.hold if span.intra_chunk else None
        blocks = BlockLayout(tokens, chunk_layout.writes, hold, span.intra_chunk, lookup_stride, early=False)
        chunk_forward, chunk_backward = count_channel_gate_chunk_products(blocks, key_dim, value_dim)
        held_read = tokens * key_dim * value_dim * (not span.intra_chunk)
        forward, backward = forward + chunk_forward + held_read, backward + chunk_backward + 2 * held_read
    return Flops(2 * rows * forward, 2 * rows * backward)


def count_channel_gate_chunk_products(blocks: BlockLayout, key_dim: int, value_dim: int) -> tuple[int, int]:
    """Return the multiply-adds of one chunk of the scan with channels, forward and backward."""
    writes, size, count = blocks.padded_writes, blocks.block_size, blocks.num_blocks
    rows, queries, lookups = count * blocks.rows, count * blocks.query_rows, count * blocks.lookup_rows
    past_writes = size * count * (count - 1) // 2  # the writes before each block, summed over the blocks
    state_size, stride = key_dim * value_dim, blocks.lookup_stride

    def overlap_products(rows_per_block: int) -> int:
        return (rows * size + past_writes * rows_per_block) * key_dim

    known_writes = lookups * writes * value_dim * (stride > 1)
    forward = overlap_products(blocks.rows) + (rows + writes) * state_size + queries * writes * value_dim
    forward += count_inverse_products(lookups) + lookups * lookups * value_dim + known_writes
    backward = overlap_products(blocks.rows if stride > 1 else blocks.query_rows)
    backward += writes * state_size + queries * writes * value_dim + lookups * lookups * value_dim + known_writes
    backward += rows * writes * value_dim + (2 * rows + writes) * state_size
    backward += 2 * (rows * size + past_writes * blocks.rows) * key_dim + writes * writes * key_dim
    return forward, backward


def log_keep_products(chunk_layout: ChunkLayout, tokens: int, key_dim: int, erases: bool, intra_chunk: bool) -> int:
    """Return the multiply-adds of the gradient of a chunk's log-keeps."""
    writes = tokens * chunk_layout.writes
    products = writes * writes * key_dim * erases + tokens * writes * writes * intra_chunk
    has_separate_lookups = chunk_layout.hold is not None or chunk_layout.writes > 1
    return products + writes**3 * (erases and has_separate_lookups)


def register_flop_formulas() -> None:
    """Register the formulas of our operators with torch's FlopCounterMode, unless this was done before."""
    from torch.utils.flop_counter import flop_registry, register_flop_formula

    formulas = (
        (scan_op, scan_op_flops),
        (scan_backward_op, scan_backward_op_flops),
        (channel_gate_scan_op, channel_gate_scan_op_flops),
        (channel_gate_scan_backward_op, channel_gate_scan_backward_op_flops),
        (banded_attention_op, banded_attention_op_flops),
        (banded_attention_backward_op, banded_attention_backward_op_flops),
        (swiglu_op, swiglu_op_flops),
        (swiglu_backward_op, swiglu_backward_op_flops),
        (cross_entropy_op, cross_entropy_op_flops),
        (cross_entropy_backward_op, cross_entropy_backward_op_flops),
    )
    for operator, formula in formulas:
        packet = operator._opoverload._overloadpacket
        if packet not in flop_registry:
            register_flop_formula(packet)(formula)


# torch passes the shapes of the tensor arguments, and the other arguments as they are
def scan_op_flops(*shapes: Any, **__: Any) -> int:
    q, k, v, _, erase, _, state, _, hold, chunk_size, *_rest = shapes
    chunk_layout = ChunkLayout.from_shapes(q, k, hold, chunk_size)
    return scan_flops(chunk_layout, q[0] * q[1], k[3], v[3], erase is not None, state is None)


def scan_backward_op_flops(*shapes: Any, **__: Any) -> int:
    (_, grad_last_state, q, k, v, log_keep, erase), (hold, chunk_size, _, starts_empty) = shapes[:7], shapes[-4:]
    chunk_layout = ChunkLayout.from_shapes(q, k, hold, chunk_size)
    sizes = (chunk_layout, q[0] * q[1], k[3], v[3], erase is not None, starts_empty)
    return scan_backward_flops(*sizes, decays=log_keep is not None, has_last_state_grad=grad_last_state is not None)


def channel_gate_scan_op_flops(*shapes: Any, **__: Any) -> int:
    q, k, values, lookup, *_, hold, chunk_size, _, _ = shapes
    return channel_gate_scan_flops(*channel_gate_scan_sizes(q, k, values, lookup, hold, chunk_size)).forward


def channel_gate_scan_backward_op_flops(*shapes: Any, **__: Any) -> int:
    _, _, q, k, values, lookup, *_, hold, chunk_size, _ = shapes
    return channel_gate_scan_flops(*channel_gate_scan_sizes(q, k, values, lookup, hold, chunk_size)).backward


def channel_gate_scan_sizes(
    q: Any, k: Any, values: Any, lookup: Any, hold: int, chunk_size: int
) -> tuple[ChunkLayout, int, int, int, int]:
    stride = 0 if lookup is None else k[2] // lookup[2]
    return ChunkLayout.from_shapes(q, k, hold, chunk_size), q[0] * q[1], k[3], values[3], stride


def banded_attention_op_flops(q: Any, k: Any, v: Any, position: Any, band_width: int, *_: Any, **__: Any) -> int:
    return banded_attention_flops(q, k, v, band_width).forward


def banded_attention_backward_op_flops(*shapes: Any, **__: Any) -> int:
    _, _, q, k, v, _, band_width, *_rest = shapes
    return banded_attention_flops(q, k, v, band_width).backward


def banded_attention_flops(q: Any, k: Any, v: Any, band_width: int) -> Flops:
    return attention_flops(q[0] * q[1] * q[2] * (band_width + k[2] - q[2]), q[3], v[3])


def swiglu_op_flops(x: Any, gate: Any, *_: Any, **__: Any) -> int:
    return 2 * x[0] * 3 * gate[0] * gate[1]


def swiglu_backward_op_flops(grad_y: Any, x: Any, gate: Any, *_: Any, **__: Any) -> int:
    """Return the backward FLOPs of three linear maps; the two that this implementation recomputes are not counted."""
    return 2 * swiglu_op_flops(x, gate)


def cross_entropy_op_flops(x: Any, weight: Any, *_: Any, **__: Any) -> int:
    return 2 * x[0] * weight[0] * weight[1]


def cross_entropy_backward_op_flops(grad_losses: Any, x: Any, weight: Any, *rest: Any, **__: Any) -> int:
    """Return the FLOPs of the requested gradients of one linear map; the recomputed logits are not counted."""
    return sum(rest[-2:]) * cross_entropy_op_flops(x, weight)
