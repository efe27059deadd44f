"""The most tokens per second that a model can be trained at on a GPU: what it computes and moves, at the chip's peaks.

    seconds per token = sum over the parts of max(FLOPs / peak FLOP/s, bytes / bandwidth)

A part is limited by its products or by memory, whichever takes longer, and parts come one after the other: the bound
holds for every implementation that does not fuse parts with each other.  It is an upper bound.  Launches, the loss,
solving a chunk's triangle, communication and waiting for data are not in it.

FLOPs are those of `sizes`, forward and backward, except that softmax computes only the scores it may see: kernels skip
blocks that are hidden.  Bytes, in bfloat16 with float32 masters under AdamW:

    activations     2 for each number of `traffic`, once forward and twice backward
    parameters      each piece of a batch: weights read forward and backward (2 + 2), gradients read and written (4 + 4)
                    each step: masters and two averages read and written (3 * 8), the bfloat16 copy written (2)

so that parameters cost a token less the more tokens there are in a batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch

from hqlt_lab.errors import ConfigError
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.model.sizes import Sizes, sizes
from hqlt_lab.model.traffic import traffic
from hqlt_lab.ops.flops import attention_flops
from hqlt_lab.ops.schedule import Schedule


class Chip(NamedTuple):
    """What the makers say of it."""

    name: str
    flops: float  # per second, dense bfloat16 products
    bandwidth: float  # bytes per second, from and to its memory


CHIPS = (Chip("A100-SXM-80GB", 312e12, 2.04e12), Chip("H100-SXM", 989e12, 3.35e12))
ACTIVATION = 2 * 3  # bytes per number: forward once, backward twice
EACH_PIECE, EACH_STEP = 4 + 8, 3 * 8 + 2  # bytes per parameter


class Demand(NamedTuple):
    """Of one part in all layers, per training token."""

    part: str
    flops: float
    bytes: float

    def seconds(self, chip: Chip) -> float:
        return max(self.flops / chip.flops, self.bytes / chip.bandwidth)

    def waits(self, chip: Chip) -> bool:
        """Whether memory is what limits it."""
        return self.bytes / chip.bandwidth > self.flops / chip.flops


@dataclass(frozen=True)
class Roofline:
    """What a model asks of one GPU."""

    demands: tuple[Demand, ...]

    def tokens_per_second(self, chip: Chip) -> float:
        """At most."""
        return 1 / sum(demand.seconds(chip) for demand in self.demands)

    def memory_share(self, chip: Chip) -> float:
        """Of the time: parts that wait for memory."""
        waiting = sum(demand.seconds(chip) for demand in self.demands if demand.waits(chip))
        return waiting * self.tokens_per_second(chip)

    def slowest(self, chip: Chip) -> tuple[str, float]:
        """The part that takes longest, and its share of the time."""
        longest = max(self.demands, key=lambda demand: demand.seconds(chip))
        return longest.part, longest.seconds(chip) * self.tokens_per_second(chip)


def roofline(model: SequenceModel, length: int, rows: float, pieces: int = 1) -> Roofline:
    """Of a live model, also one on the meta device; `rows` of `length` tokens make a step, cut into `pieces`."""
    if rows <= 0 or pieces < 1:
        raise ConfigError(f"rows, pieces: more than 0 rows and at least 1 piece are needed, got {rows} and {pieces}.")
    return Roofline(tuple(demands(model, sizes(model, length), rows * length / pieces, pieces)))


def demands(model: SequenceModel, found: Sizes, tokens: float, pieces: int) -> Iterator[Demand]:
    """Part by part, and the optimiser last; a piece has so many tokens."""
    moved: dict[str, int] = {}
    for part, numbers in traffic(model):
        moved[part] = moved.get(part, 0) + numbers
    # what carries state and computes nothing, such as the count of tokens, asks nothing of a GPU
    for part in dict.fromkeys((*moved, *(size.part for size in found.parts if size.training))):
        training = seen_flops(model, found.length) if part == "softmax" else found[part].training
        moving = ACTIVATION * moved.get(part, 0) + EACH_PIECE * found[part].parameters / tokens
        yield Demand(part, training / found.length, moving)
    yield Demand("optimiser", 0, EACH_STEP * found.total.parameters / (tokens * pieces))


def seen_flops(model: SequenceModel, length: int) -> int:
    """Of softmax in all layers, forward and backward, where nothing hidden is computed."""
    total = 0
    for memory in model.memories:
        if memory.positions is not None:
            size = memory.to_q.out_features // memory.heads
            total += sum(attention_flops(memory.heads * scores_seen(memory.schedule, length), size, size))
    return total


def scores_seen(schedule: Schedule, length: int) -> int:
    """Pairs of a query and a key that softmax may see, in a row of so many tokens."""
    t = torch.arange(length, device="cpu")
    seen = 1 + (t if schedule.block is None else t % schedule.block)
    return int(seen.clamp(max=schedule.window or length).sum())
