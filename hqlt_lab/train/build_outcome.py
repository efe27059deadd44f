"""End of a run: the weights and metrics that are reported, and the outcome.

Supervised and reinforcement learning share this.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor, nn

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.model.analysis.component_sizes import ModelSizes, parameter_sizes, sizes
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.rundir.diagnostics import read_determinism_check
from hqlt_lab.rundir.outcome import Outcome, OutcomeStatus
from hqlt_lab.train.checkpoints.checkpoint_io import BEST_CHECKPOINT, read_checkpoint
from hqlt_lab.train.distributed.fsdp import gather_parameters
from hqlt_lab.train.per_memory_training import set_evaluation_step
from hqlt_lab.train.trainer_state import Metrics, TrainerState, record_analysis_failure


def select_reported_weights(
    cell: Cell,
    folder: Path,
    trainer_state: TrainerState,
    *,
    model: nn.Module,
    step: int,
    load_weights: Callable[[Mapping[str, Tensor]], None],
) -> Metrics:
    """Load the weights to test, as set by `train.report`, and return the metrics of their validation.

    The model, or the agent, has the weights after `step` steps, which are tested unless better ones are reported.
    """
    if cell.train.report != "best_valid":
        set_evaluation_step(model, cell.train, step)
        return trainer_state.last
    checkpoint = read_checkpoint(folder / BEST_CHECKPOINT)
    load_weights(checkpoint["state_dict"])
    set_evaluation_step(model, cell.train, checkpoint["global_step"])
    return trainer_state.best


def add_prefix(prefix: str, metrics: Metrics) -> Metrics:
    """Return metrics with their split in the name: "test/accuracy"."""
    return {f"{prefix}/{name}": value for name, value in metrics.items()}


def build_outcome(
    cell: Cell,
    folder: Path,
    trainer_state: TrainerState,
    status: OutcomeStatus,
    *,
    model: SequenceModel,
    length: int,
    step: int,
    updates: int,
    metrics: Metrics,
    errors: Metrics | None = None,
) -> Outcome:
    """Return the outcome with the time and the model sizes of the run.

    `length` is that of the longest training row; `updates` counts optimizer steps, of which each reads a batch.
    """
    with gather_parameters(model):
        size = measure_sizes(model.eval(), length, trainer_state)
    tokens, determinism = updates * cell.train.batch_size * length, read_determinism_check(folder)
    return Outcome(
        status=status,
        step=step,
        metrics=metrics,
        seconds=trainer_state.seconds,
        tokens_per_second=tokens / trainer_state.training_seconds if trainer_state.training_seconds else 0.0,
        parameters=size.total.parameters,
        state_bytes=size.total.state,
        flops_per_token=size.total.training / size.length,
        errors=errors or {},
        repeatable=determinism.repeatable if determinism else None,
        message=" ".join(trainer_state.notes),
        warnings=trainer_state.warnings,
    )


def measure_sizes(model: SequenceModel, length: int, trainer_state: TrainerState) -> ModelSizes:
    """Return the sizes of a model; only its parameters if state or FLOPs cannot be computed."""
    model_sizes = ModelSizes(length, tuple(parameter_sizes(model)))
    with record_analysis_failure(trainer_state, "State size and FLOPs"):
        model_sizes = sizes(model, length)
    return model_sizes
