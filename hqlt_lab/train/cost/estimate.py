"""The cost of a cell (time, memory, disk), estimated from its size or measured by running some steps.

Estimated: the FLOPs of its matrix multiplications (`model/analysis/component_sizes.py`) at a quarter of the speed of a
large matrix product on one core or GPU, which is what a cell of a study gets, plus the launch overhead of the
operations of all layers and of update rules without a parallel scan.  The estimate may be off by a factor of two.

Measured (`train/cost/benchmark.py`): training steps and a part of an evaluation, one child process per arm, so that its
peak memory is its own.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import TYPE_CHECKING

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.expand_cells import PlannedCell
from hqlt_lab.experiment.validate.arm_checks import build_meta_model
from hqlt_lab.model.analysis.component_sizes import ModelSizes, sizes
from hqlt_lab.process_settings import limit_torch_threads
from hqlt_lab.registry import build
from hqlt_lab.tasks._base import Split
from hqlt_lab.train.cost.benchmark import StepTiming, measure_step_timing, time_call

if TYPE_CHECKING:
    from torch import Tensor

EFFICIENCY = 0.25
REPLAY_BYTES_PER_STEP = 5  # of an environment step, without the observation
# Launch overhead of a forward pass, in operations on a small tensor; a backward pass takes about twice that.
OPS_PER_RULE_STEP, OPS_PER_LAYER = 200, 1300  # per sequential step of an update rule, and per layer


@dataclass(frozen=True)
class CellCost:
    """Time, memory and disk space of training one cell."""

    sizes: ModelSizes  # at the longest training row
    tokens: int  # number of training tokens, padding included
    step_seconds: float
    total_seconds: float  # all steps and evaluations
    disk_bytes: int  # checkpoints during the run, and the replay buffer of an agent
    peak_memory_bytes: int | None = None  # of a step; None: not measured


def estimate_arm_costs(planned: list[PlannedCell], measure: bool) -> Iterator[tuple[str, list[Cell], CellCost]]:
    """Yield each arm with its cells and the cost of one cell; the cells differ only in seed and tuned values."""
    arms: dict[str, list[Cell]] = {}
    for planned_cell in planned:
        arms.setdefault(planned_cell.cell.arm, []).append(planned_cell.cell)
    for arm, cells in arms.items():
        yield arm, cells, estimate_cell_cost(cells[0], measure)


def estimate_cell_cost(cell: Cell, measure: bool) -> CellCost:
    """Return the cost of one cell, measured or estimated."""
    task = build("task", cell.task)
    sizes_by_split = model_sizes_by_split(cell, *task.splits)
    updates = 1.0 if cell.agent is None else cell.agent.updates_per_step
    rows = cell.train.batch_size * updates  # per step
    step_flops = rows * sizes_by_split["train"].total.training
    validations = -(-cell.train.steps // cell.train.valid_every)
    forward = {split: sizes_by_split[split].total.forward for split in task.splits}
    eval_flops = task.eval_size * (validations * (forward.get("short", 0) + forward["valid"]) + forward["test"])
    timing = measure_step_timing(cell) if measure else estimate_step_timing(cell, sizes_by_split, updates)
    eval_seconds = eval_flops * (
        timing.step_seconds / step_flops
        if timing.eval_row_seconds is None
        else timing.eval_row_seconds / forward["valid"]
    )
    seconds = timing.step_seconds * cell.train.steps + eval_seconds
    # two checkpoints, each with weights and Adam's two moments in float32
    disk = 2 * 3 * 4 * sizes_by_split["train"].total.parameters
    tokens = int(cell.train.steps * rows * task.sequence_length("train"))
    if cell.agent is not None:
        disk += cell.train.steps * (prod(task.observation_shape) + REPLAY_BYTES_PER_STEP)
    return CellCost(sizes_by_split["train"], tokens, timing.step_seconds, seconds, disk, timing.peak_memory_bytes)


def estimate_step_timing(cell: Cell, sizes_by_split: Mapping[str, ModelSizes], updates: float) -> StepTiming:
    """Estimate the time of a training step and of a validation example from FLOPs and launch overhead."""
    train = cell.train
    step_seconds = updates * train.batch_size * sizes_by_split["train"].total.training / attainable_flops_per_second()
    step_seconds += updates * train.accumulate * 3 * op_overhead_seconds(cell, sizes_by_split["train"])
    eval_batch = min(train.eval_batch_size, build("task", cell.task).eval_size)
    return StepTiming(
        step_seconds,
        sizes_by_split["valid"].total.forward / attainable_flops_per_second()
        + op_overhead_seconds(cell, sizes_by_split["valid"]) / eval_batch,
    )


def op_overhead_seconds(cell: Cell, model_sizes: ModelSizes) -> float:
    """Return the launch overhead of a forward pass in seconds."""
    return (
        OPS_PER_RULE_STEP * model_sizes.sequential_steps + OPS_PER_LAYER * int(cell.model["layers"])
    ) * op_launch_seconds()


def model_sizes_by_split(cell: Cell, *splits: Split) -> dict[str, ModelSizes]:
    """Return the sizes of a cell's model at the longest rows of these splits."""
    task = build("task", cell.task)
    model = build_meta_model(cell, task.vocabulary).set_backends(cell.ops)
    lengths = {split: task.sequence_length(split) for split in splits}
    sizes_by_length = {length: sizes(model, length) for length in set(lengths.values())}
    return {split: sizes_by_length[length] for split, length in lengths.items()}


@cache
def attainable_flops_per_second() -> float:
    """Return the FLOP/s that a model can be expected to reach on one core or GPU of this machine."""
    return EFFICIENCY * 2 * 1024**3 / time_matrix_op(1024, 1, lambda matrix: matrix @ matrix)


@cache
def op_launch_seconds() -> float:
    """Return the seconds that launching one small operation takes."""
    return time_matrix_op(16, 100, lambda matrix: matrix * matrix)


def time_matrix_op(size: int, repeats: int, operation: Callable[["Tensor"], "Tensor"]) -> float:
    """Return the seconds of an operation on a square matrix on one core or GPU: the best of three timed loops."""
    import torch

    matrix = torch.randn(size, size, device="cuda" if torch.cuda.is_available() else "cpu")

    def run_loop() -> None:
        for _ in range(repeats):
            result = operation(matrix)
        result.sum().item()

    with limit_torch_threads(1):
        return min(time_call(run_loop) for _ in range(3)) / repeats
