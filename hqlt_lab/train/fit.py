"""Train and test one cell.

    outcome = fit(cell, folder, on_metrics)

Called again with the same folder, it resumes from the last checkpoint, or returns the outcome of a finished run.
"""

from contextlib import nullcontext
from pathlib import Path
from typing import cast

from lightning.pytorch import Trainer

from hqlt_lab.agent.replay_buffer import REPLAY_FILE
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.model.config import model_config
from hqlt_lab.model.initialize import initialize_parameters
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.process_settings import disable_malloc_trim
from hqlt_lab.registry import build
from hqlt_lab.rundir.cell_file import training_lock, write_cell
from hqlt_lab.rundir.outcome import Outcome, OutcomeStatus, read_outcome
from hqlt_lab.tasks._base import Task
from hqlt_lab.train.build_outcome import add_prefix, build_outcome, select_reported_weights
from hqlt_lab.train.checkpoints.checkpoint_io import BEST_CHECKPOINT, LAST_CHECKPOINT, PREVIOUS_CHECKPOINT
from hqlt_lab.train.checkpoints.resume_point import find_resume_point
from hqlt_lab.train.distributed.env import is_rank_zero
from hqlt_lab.train.distributed.fit_in_subprocess import fit_in_subprocess
from hqlt_lab.train.distributed.fsdp import full_state, load_full_weights
from hqlt_lab.train.divergence import DivergenceError, write_failing_step
from hqlt_lab.train.lightning_module import TrainingModule
from hqlt_lab.train.micro_batches import check_batch_division
from hqlt_lab.train.rl.fit_agent import fit_agent
from hqlt_lab.train.trainer import build_trainer, silence_lightning
from hqlt_lab.train.trainer_state import Metrics, MetricsCallback
from hqlt_lab.train.training_callback import RunCallback, score_module


def remove_checkpoints(folder: Path, keep: str) -> None:
    """Remove the checkpoints of a finished run that `train.keep` does not name, and the replay buffer.

    If the checkpoint to keep does not exist, the others stay.  Idempotent.
    """
    kept_file = f"{keep}.ckpt"
    if keep == "none" or (folder / kept_file).exists():
        for name in {LAST_CHECKPOINT, PREVIOUS_CHECKPOINT, BEST_CHECKPOINT} - {kept_file}:
            (folder / name).unlink(missing_ok=True)
    (folder / REPLAY_FILE).unlink(missing_ok=True)


def discard_metrics(step: int, metrics: Metrics) -> None:
    """Do nothing with the metrics; default of `on_metrics` in `fit`."""


def fit(cell: Cell, folder: Path, on_metrics: MetricsCallback = discard_metrics) -> Outcome:
    """Train and test a cell, and return its outcome.  `on_metrics` is called with (step, metrics) during the run."""
    outcome = (fit_in_subprocess if is_multi_device(cell) else fit_in_process)(cell, folder, on_metrics)
    # needed for a finished run too: an earlier attempt may have been killed before this line
    remove_checkpoints(folder, cell.train.keep)
    return outcome


def is_multi_device(cell: Cell) -> bool:
    """Return whether the cell needs more than one device, and so more than one process."""
    return cell.trainer.devices * cell.trainer.nodes > 1


def fit_in_process(cell: Cell, folder: Path, on_metrics: MetricsCallback = discard_metrics) -> Outcome:
    """Train and test a cell in this process.

    For a cell with several devices, `train.distributed.rank_main` must call this in one process per device.
    """
    write_cell(folder, cell)
    with training_lock(folder) if is_rank_zero() or not is_multi_device(cell) else nullcontext():
        return read_outcome(folder) or train_and_test(cell, folder, on_metrics)


@silence_lightning()
def train_and_test(cell: Cell, folder: Path, on_metrics: MetricsCallback) -> Outcome:
    """Train from the state of the folder, test, and write the outcome."""
    disable_malloc_trim()
    task = build("task", cell.task)
    task.check_ready()
    if task.is_environment:
        return fit_agent(cell, task, folder, on_metrics)
    check_batch_division(cell, task)
    start = find_resume_point(folder, cell)
    module = TrainingModule(build_model(cell, task), task, cell, start.trainer_state)
    callback = RunCallback(cell, folder, start.trainer_state, on_metrics)
    with module.stop_handler:
        trainer = build_trainer(
            cell, start.step if start.trainer_state.finished else cell.train.steps, folder, callback
        )
        try:
            trainer.fit(module, ckpt_path=start.checkpoint, weights_only=True)
            outcome = finish_run(trainer, module, callback)
        except DivergenceError as error:
            outcome = finish_diverged_run(trainer, module, callback, error)
    if trainer.is_global_zero:
        outcome.write(folder)
    return outcome


def build_model(cell: Cell, task: Task) -> SequenceModel:
    """Build the model of a cell with its initial weights and settings."""
    model = SequenceModel(model_config({**cell.model, "vocabulary": task.vocabulary}))
    initialize_parameters(model, model.config, cell.seed)
    model.set_backends(cell.ops).set_recompute(cell.train.recompute)
    if cell.train.compile:
        model.compile()
    return model


def finish_run(trainer: Trainer, module: TrainingModule, callback: RunCallback) -> Outcome:
    """Test the last or best weights, as set by `train.report`, and return the outcome."""
    valid_metrics = select_reported_weights(
        module.cell,
        callback.folder,
        module.trainer_state,
        model=module.model,
        step=trainer.global_step,
        load_weights=lambda weights: load_full_weights(module, weights),
    )
    module.to(trainer.strategy.root_device)  # Lightning moves it to the CPU after training
    score = score_module(trainer, module, "test")
    metrics = add_prefix("test", score.metrics)
    callback.record_metrics(trainer, trainer.global_step, metrics)
    errors = add_prefix("test", score.errors)
    return build_run_outcome(module, callback, "done", trainer.global_step, valid_metrics | metrics, errors)


def finish_diverged_run(
    trainer: Trainer, module: TrainingModule, callback: RunCallback, error: DivergenceError
) -> Outcome:
    """Save the failing batch with the weights, and return the outcome of a diverged run."""
    weights = full_state(module.model.state_dict())
    if trainer.is_global_zero:
        seed, rows = module.cell.seed, module.cell.train.batch_size
        batch = module.task.get_train_batch(seed, error.step, rows)
        write_failing_step(callback.folder, {"step": error.step, "seed": seed, **batch._asdict()}, weights)
    module.trainer_state.notes.append(str(error))
    return build_run_outcome(module, callback, "diverged", error.step, module.trainer_state.last)


def build_run_outcome(
    module: TrainingModule,
    callback: RunCallback,
    status: OutcomeStatus,
    step: int,
    metrics: Metrics,
    errors: Metrics | None = None,
) -> Outcome:
    """Count the time since the last step, and return the outcome of a run."""
    callback.timer.add_other_time()
    return build_outcome(
        module.cell,
        callback.folder,
        module.trainer_state,
        status,
        model=cast(SequenceModel, module.model),
        length=module.task.sequence_length("train"),
        step=step,
        updates=step,
        metrics=metrics,
        errors=errors,
    )
