"""Roofline: upper bound on the training throughput of a model on a GPU, from its FLOPs and memory traffic.

    seconds per token = sum over the components of max(FLOPs / peak FLOP/s, bytes / bandwidth)

A component is limited by compute or by memory bandwidth, and components run one after the other, so the bound holds for
every implementation that does not fuse components with each other.  Kernel launches, the loss, solving the triangular
systems of chunks, communication and waiting for data are not included.

FLOPs are those of `sizes`, forward and backward, except that softmax counts only visible scores, since kernels skip
masked blocks.  Bytes are those of bfloat16 training with float32 master weights and AdamW:

    activations     2 per number of `component_traffic`, once forward and twice backward
    parameters      per micro-batch: weights read forward and backward (2 + 2), gradients read and written (4 + 4)
                    per step: master weights and two averages read and written (3 * 8), bfloat16 copy written (2)

so parameters cost less per token the more tokens a batch has.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch

from hqlt_lab.errors import ConfigError, ConfigIssue
from hqlt_lab.model.analysis.component_sizes import ModelSizes, sizes
from hqlt_lab.model.analysis.hbm_traffic import component_traffic
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.ops.flops import attention_flops
from hqlt_lab.ops.memory_schedule import Schedule


class Chip(NamedTuple):
    """Peak performance of a GPU, as published by its vendor."""

    name: str
    flops: float  # FLOP/s of dense bfloat16 products
    bandwidth: float  # bytes per second


CHIPS = (Chip("A100-SXM-80GB", 312e12, 2.04e12), Chip("H100-SXM", 989e12, 3.35e12))
ACTIVATION_BYTES = 2 * 3  # bytes per number: forward once, backward twice
MICRO_BATCH_BYTES, STEP_BYTES = 4 + 8, 3 * 8 + 2  # bytes per parameter


class ComponentCost(NamedTuple):
    """FLOPs and bytes of one component, over all layers, per training token."""

    component: str
    flops: float
    bytes: float

    def compute_seconds(self, chip: Chip) -> float:
        """Return the time per token: the slower of arithmetic and memory traffic."""
        return max(self.flops / chip.flops, self.bytes / chip.bandwidth)

    def is_memory_bound(self, chip: Chip) -> bool:
        return self.bytes / chip.bandwidth > self.flops / chip.flops


@dataclass(frozen=True)
class Roofline:
    """Costs of the components of a model on one GPU."""

    costs: tuple[ComponentCost, ...]

    def tokens_per_second(self, chip: Chip) -> float:
        """Return the upper bound on the throughput."""
        return 1 / sum(cost.compute_seconds(chip) for cost in self.costs)

    def memory_bound_fraction(self, chip: Chip) -> float:
        """Return the fraction of the time that is spent in memory-bound components."""
        memory_bound = sum(cost.compute_seconds(chip) for cost in self.costs if cost.is_memory_bound(chip))
        return memory_bound * self.tokens_per_second(chip)

    def slowest_component(self, chip: Chip) -> tuple[str, float]:
        """Return the component that takes longest, and its share of the time."""
        slowest = max(self.costs, key=lambda cost: cost.compute_seconds(chip))
        return slowest.component, slowest.compute_seconds(chip) * self.tokens_per_second(chip)


def roofline(model: SequenceModel, length: int, rows: float, micro_batches: int = 1) -> Roofline:
    """Return the roofline of a model, also on the meta device.

    A step has `rows` rows of `length` tokens, in `micro_batches` micro-batches.
    """
    if rows <= 0 or micro_batches < 1:
        message = f"more than 0 rows and at least 1 micro-batch are needed, got {rows} and {micro_batches}."
        raise ConfigError(ConfigIssue("rows", "not_positive", message, other_paths=("micro_batches",)))
    return Roofline(tuple(component_costs(model, sizes(model, length), rows * length / micro_batches, micro_batches)))


def component_costs(
    model: SequenceModel, model_sizes: ModelSizes, tokens_per_micro_batch: float, micro_batches: int
) -> Iterator[ComponentCost]:
    """Yield the cost of each component, and that of the optimizer last."""
    inner_length = model_sizes.length + model.config.meta_tokens
    traffic: dict[str, float] = {}
    for component, numbers in component_traffic(model):
        tokens = model_sizes.length if component in ("embedding", "head") else inner_length
        traffic[component] = traffic.get(component, 0) + numbers * tokens / model_sizes.length
    # components that only have state, such as `document_length`, are left out
    computing = (size.component for size in model_sizes.components if size.training)
    for component in dict.fromkeys((*traffic, *computing)):
        flops = model_sizes[component].training
        if component == "softmax":
            flops = visible_softmax_flops(model, inner_length)
        moved_bytes = (
            ACTIVATION_BYTES * traffic.get(component, 0)
            + MICRO_BATCH_BYTES * model_sizes[component].parameters / tokens_per_micro_batch
        )
        yield ComponentCost(component, flops / model_sizes.length, moved_bytes)
    yield ComponentCost(
        "optimizer", 0, STEP_BYTES * model_sizes.total.parameters / (tokens_per_micro_batch * micro_batches)
    )


def visible_softmax_flops(model: SequenceModel, length: int) -> int:
    """Return the FLOPs of softmax in all layers, forward and backward, if masked scores are not computed."""
    total = 0
    for memory in model.memories:
        if memory.positions is not None:
            size = memory.sizes["kv"]
            scores = size.heads * count_visible_scores(memory.schedule, length)
            total += sum(attention_flops(scores, size.key_dim, size.value_dim))
    return total


def count_visible_scores(schedule: Schedule, length: int) -> int:
    """Return the number of visible query-key pairs in a row of `length` tokens."""
    return int(schedule.count_visible(torch.arange(length, device="cpu")).sum())
