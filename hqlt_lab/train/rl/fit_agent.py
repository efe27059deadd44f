"""Train and test one agent: what `train.fit` does if the task is an environment.

Steps are environment steps.  Validation, logging and checkpointing happen at the end of the first iteration after each
multiple of their interval; the run ends with the iteration that reaches `train.steps`.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from hqlt_lab.agent.action_selection import PolicyActor
from hqlt_lab.agent.episode_gif import GIF_FILE, record_episode, write_gif
from hqlt_lab.agent.streaming_check import check_streaming_equivalence
from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.validate.arm_checks import check_agent_settings
from hqlt_lab.model.analysis.backend_report import layer_backends
from hqlt_lab.rundir.diagnostics import DeterminismCheck, write_backends
from hqlt_lab.rundir.outcome import Outcome, OutcomeStatus
from hqlt_lab.tasks._base import Task
from hqlt_lab.tasks._environment import Environment
from hqlt_lab.train.build_outcome import add_prefix, build_outcome, select_reported_weights
from hqlt_lab.train.checkpoints.checkpoint_io import (
    attach_metadata,
    read_checkpoint,
    write_best_weights,
    write_last_checkpoint,
)
from hqlt_lab.train.checkpoints.resume_point import find_resume_point
from hqlt_lab.train.determinism_check import (
    find_differences,
    parameter_gradients,
    preserve_rng_and_buffers,
    record_determinism_check,
)
from hqlt_lab.train.divergence import DivergenceError, write_failing_step
from hqlt_lab.train.interrupt import StopSignalHandler, stopped_after_saving
from hqlt_lab.train.per_memory_training import zero_waiting_memories
from hqlt_lab.train.rl.evaluate_agent import score_agent
from hqlt_lab.train.rl.sac_trainer import SacTrainer
from hqlt_lab.train.trainer import compute_dtype, lightning_precision
from hqlt_lab.train.trainer_state import (
    Metrics,
    MetricsCallback,
    TrainerState,
    TrainingTimer,
    record_analysis_failure,
    record_validation,
)


def is_full_precision(cell: Cell) -> bool:
    """Return whether layers compute in float32 or float64."""
    return compute_dtype(lightning_precision(cell.trainer)) in (torch.float32, torch.float64)


def record_agent_backends(sac_trainer: SacTrainer, folder: Path, trainer_state: TrainerState) -> None:
    """Write the backends that are selected for training episodes."""
    precision, device, tokens = (
        lightning_precision(sac_trainer.cell.trainer),
        sac_trainer.agent.device.type,
        sac_trainer.environment.sequence_length("train"),
    )
    backends = None
    with record_analysis_failure(trainer_state, "Backends", is_before_training=True):
        backends = layer_backends(sac_trainer.agent.memory, tokens, device, compute_dtype(precision))
    if backends is not None:
        write_backends(folder, device, precision, backends)


def update_gradients(sac_trainer: SacTrainer) -> dict[str, Tensor]:
    """Return the loss and the gradients of the next update, by parameter name, without changing anything."""
    named = dict(sac_trainer.agent.named_parameters())
    with preserve_rng_and_buffers(sac_trainer.agent, sac_trainer.agent.device):
        loss = sac_trainer.compute_losses().total
        grads = parameter_gradients(loss, list(named.values()), is_sharded=False)
    return {"loss": loss.detach(), **dict(zip(named, grads, strict=True))}


def finish_agent_run(
    sac_trainer: SacTrainer, folder: Path, trainer_state: TrainerState, on_metrics: MetricsCallback
) -> Outcome:
    """Test the last or best weights, as set by `train.report`, record an episode, and return the outcome."""
    timer = TrainingTimer(trainer_state)
    valid_metrics = select_reported_weights(
        sac_trainer.cell,
        folder,
        trainer_state,
        model=sac_trainer.agent,
        step=sac_trainer.counters.steps,
        load_weights=sac_trainer.load_weights,
    )
    score = score_agent(sac_trainer.agent, sac_trainer.environment, "test", sac_trainer.cell.train.eval_batch_size)
    metrics = add_prefix("test", score.metrics)
    on_metrics(sac_trainer.counters.steps, metrics)
    vector_env = sac_trainer.environment.reset("test", 0, 0, 1)
    write_gif(folder / GIF_FILE, record_episode(vector_env, PolicyActor(sac_trainer.agent.eval(), greedy=True)))
    timer.add_other_time()
    return build_agent_outcome(
        sac_trainer, folder, trainer_state, "done", valid_metrics | metrics, add_prefix("test", score.errors)
    )


def finish_diverged_agent(
    sac_trainer: SacTrainer, folder: Path, trainer_state: TrainerState, error: DivergenceError
) -> Outcome:
    """Save the batch and weights of the failing update, and return the outcome of a diverged run."""
    batch = sac_trainer.replay.sample_batch(
        sac_trainer.cell.seed, sac_trainer.counters.updates, sac_trainer.cell.train.batch_size
    )
    content = {
        "step": error.step,
        "update": sac_trainer.counters.updates,
        "seed": sac_trainer.cell.seed,
        **batch._asdict(),
    }
    write_failing_step(folder, content, sac_trainer.agent.state_dict())
    trainer_state.notes.append(str(error))
    return build_agent_outcome(sac_trainer, folder, trainer_state, "diverged", trainer_state.last)


def build_agent_outcome(
    sac_trainer: SacTrainer,
    folder: Path,
    trainer_state: TrainerState,
    status: OutcomeStatus,
    metrics: Metrics,
    errors: Metrics | None = None,
) -> Outcome:
    """Return the outcome with the sizes of the agent's memory, in which arms differ."""
    return build_outcome(
        sac_trainer.cell,
        folder,
        trainer_state,
        status,
        model=sac_trainer.agent.memory,
        length=sac_trainer.environment.sequence_length("train"),
        step=sac_trainer.counters.steps,
        updates=sac_trainer.counters.updates,
        metrics=metrics,
        errors=errors,
    )


def fit_agent(cell: Cell, task: Task, folder: Path, on_metrics: MetricsCallback) -> Outcome:
    """Train an agent from the state of the folder, test it, and write the outcome."""
    if issues := check_agent_settings(cell):
        raise ConfigError(*issues)
    start = find_resume_point(folder, cell)
    sac_trainer = SacTrainer(
        cell, cast(Environment, task), folder, None if start.checkpoint is None else read_checkpoint(start.checkpoint)
    )
    run = AgentRun(sac_trainer, folder, start.trainer_state, on_metrics)
    with run.stop_handler:
        try:
            run.run_until_finished()
            outcome = finish_agent_run(sac_trainer, folder, run.trainer_state, on_metrics)
        except DivergenceError as error:
            run.timer.add_training_time()
            outcome = finish_diverged_agent(sac_trainer, folder, run.trainer_state, error)
    outcome.write(folder)
    return outcome


class AgentRun:
    """Runs the training loop of an agent: iterations, logging, validation, checkpoints and stopping."""

    def __init__(
        self, sac_trainer: SacTrainer, folder: Path, trainer_state: TrainerState, on_metrics: MetricsCallback
    ) -> None:
        self.sac_trainer, self.cell, self.folder = sac_trainer, sac_trainer.cell, folder
        self.trainer_state, self.on_metrics, self.stop_handler = trainer_state, on_metrics, StopSignalHandler()
        self.timer, self.seconds_since_log, self.counters_at_log = (
            TrainingTimer(trainer_state),
            0.0,
            asdict(sac_trainer.counters),
        )
        self.last_saved_step = sac_trainer.counters.steps

    def run_until_finished(self) -> None:
        """Run iterations until the goal or `train.steps` is reached.  Raise RunInterrupted if a stop is requested."""
        record_agent_backends(self.sac_trainer, self.folder, self.trainer_state)
        check_streaming_equivalence(
            self.sac_trainer.agent.train(), self.sac_trainer.environment, self.cell.seed, is_full_precision(self.cell)
        )
        if self.sac_trainer.counters.last_validated < 0:
            self.validate_agent()
            self.save_checkpoint()
        self.stop_handler.is_training = True
        while not self.trainer_state.finished:
            self.timer.add_other_time()
            self.run_iteration()
            self.seconds_since_log += self.timer.add_training_time()
            self.on_iteration_end()
            if self.stop_handler.stop_requested:
                self.save_and_stop()
        self.stop_handler.is_training = False

    def run_iteration(self) -> None:
        """Collect episodes, unless the run was resumed with updates still due, then make the updates that are due."""
        sac_trainer, counters = self.sac_trainer, self.sac_trainer.counters
        if counters.updates >= sac_trainer.num_updates_due:
            episodes = sac_trainer.collect_episodes()
            metrics = {"return": episodes.returns.mean(), "success": 100 * episodes.success.mean()}
            self.on_metrics(counters.steps, {f"train/{name}": float(value) for name, value in metrics.items()})
        if self.cell.trainer.check_determinism and counters.updates == 0 < sac_trainer.num_updates_due:
            differs = find_differences(lambda: update_gradients(sac_trainer))
            check = DeterminismCheck(not differs, differs)
            record_determinism_check(check, self.cell, self.trainer_state, self.folder)
        while counters.updates < sac_trainer.num_updates_due:
            sac_trainer.update_weights()
            if self.stop_handler.stop_requested and counters.updates < sac_trainer.num_updates_due:
                self.save_and_stop()

    def save_and_stop(self) -> None:
        """Save a checkpoint and raise RunInterrupted."""
        self.save_checkpoint()
        raise stopped_after_saving(self.sac_trainer.counters.steps)

    def on_iteration_end(self) -> None:
        """Log, validate and save, as due after this iteration."""
        train, counters, step = self.cell.train, self.sac_trainer.counters, self.sac_trainer.counters.steps
        if is_interval_crossed(train.log_every, counters.last_logged, step):
            self.on_metrics(step, self.sac_trainer.update_metrics | self.speed_metrics())
            counters.last_logged = step
        if is_interval_crossed(train.valid_every, counters.last_validated, step) or step >= train.steps:
            self.validate_agent()
        if is_interval_crossed(train.checkpoint_every, self.last_saved_step, step) or self.trainer_state.finished:
            self.save_checkpoint()

    def speed_metrics(self) -> Metrics:
        """Return environment steps, updates and trained tokens per second since the last log."""
        now, seconds = asdict(self.sac_trainer.counters), max(self.seconds_since_log, 1e-9)
        steps, updates = ((now[name] - self.counters_at_log[name]) / seconds for name in ("steps", "updates"))
        self.counters_at_log, self.seconds_since_log = now, 0.0
        tokens = updates * self.cell.train.batch_size * self.sac_trainer.environment.sequence_length("train")
        rates = {"steps": steps, "updates": updates, "tokens": tokens}
        return {f"speed/{name}_per_second": rate for name, rate in rates.items()}

    def validate_agent(self) -> None:
        """Score the validation episodes, save the weights if they are the best, and finish if the goal is reached."""
        step = self.sac_trainer.counters.steps
        zero_waiting_memories(self.sac_trainer.agent, self.cell.train, step)
        score = score_agent(
            self.sac_trainer.agent, self.sac_trainer.environment, "valid", self.cell.train.eval_batch_size
        )
        valid = add_prefix("valid", score.metrics)
        self.on_metrics(step, valid)
        loss = {name: value for name, value in self.sac_trainer.update_metrics.items() if name == "train/loss"}
        if record_validation(self.trainer_state, self.cell, step, valid | loss):
            write_best_weights(
                {
                    "state_dict": self.sac_trainer.checkpoint_weights(),
                    "global_step": step,
                    **self.checkpoint_metadata(),
                },
                self.folder,
            )
        self.sac_trainer.counters.last_validated = step

    def save_checkpoint(self) -> None:
        """Save last.ckpt."""
        self.timer.add_other_time()
        write_last_checkpoint(self.sac_trainer.state_dict() | self.checkpoint_metadata(), self.folder)
        self.last_saved_step = self.sac_trainer.counters.steps

    def checkpoint_metadata(self) -> dict[str, Any]:
        """Return the cell and the trainer state, as stored in checkpoints."""
        checkpoint: dict[str, Any] = {}
        attach_metadata(checkpoint, self.cell, self.trainer_state)
        return checkpoint


def is_interval_crossed(interval: int, last: int, step: int) -> bool:
    """Return whether a multiple of `interval` lies in (last, step]."""
    return step // interval > last // interval
