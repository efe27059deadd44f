"""The Lightning callback of a run: log, validate, probe, save checkpoints and stop.

Model FLOPs utilization (speed/mfu, in percent):

    mfu = 100 * tokens per second * FLOPs per token / (GPUs * peak FLOP/s)

FLOPs are those of `model.analysis.component_sizes`, one forward and backward pass: recomputation and communication
lower the mfu.  The peak is the vendor's for 16-bit floats, so there is no mfu for other precisions or unknown chips.

Probes measure the memories on a few validation examples, always the same ones.  Each layer's mean over heads is logged
(`probe/layer_0/share`), and the values per layer and head go to probes.jsonl.  Probing does not change training: the
results with and without it are bitwise equal.
"""

import math
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.run_settings import TrainConfig
from hqlt_lab.model.analysis.backend_report import layer_backends
from hqlt_lab.model.analysis.component_sizes import sizes
from hqlt_lab.model.analysis.layer_probes import Probes, probe
from hqlt_lab.model.analysis.roofline import CHIPS
from hqlt_lab.model.batch_layout import Layout
from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.rundir.diagnostics import ProbeWriter, write_backends
from hqlt_lab.tasks._base import Split, Task
from hqlt_lab.train.build_outcome import add_prefix
from hqlt_lab.train.checkpoints.checkpoint_io import save_best_weights, save_last_checkpoint
from hqlt_lab.train.determinism_check import compare_first_step, record_determinism_check
from hqlt_lab.train.distributed.fsdp import gather_parameters
from hqlt_lab.train.distributed.process_group import get_world_size
from hqlt_lab.train.interrupt import stopped_after_saving
from hqlt_lab.train.lightning_module import TrainingModule
from hqlt_lab.train.micro_batches import MicroBatch
from hqlt_lab.train.per_memory_training import set_evaluation_step
from hqlt_lab.train.scoring import Score, score_model
from hqlt_lab.train.trainer import compute_dtype
from hqlt_lab.train.trainer_state import (
    Metrics,
    MetricsCallback,
    TrainerState,
    TrainingTimer,
    is_solved,
    record_analysis_failure,
    record_validation,
)

A100, H100 = CHIPS
# substring of the device name -> chip; the memory type excludes slower H100 variants (PCIe, NVL)
CHIPS_BY_DRIVER_NAME = {"A100": A100, "H100 80GB HBM3": H100}
HALF_DTYPES = (torch.bfloat16, torch.float16)


def peak_flops(device_name: str) -> float | None:
    """Return the peak FLOP/s of a chip from the name that its driver reports; None if it is unknown."""
    return next((chip.flops for name, chip in CHIPS_BY_DRIVER_NAME.items() if name in device_name), None)


def peak_tokens_per_second(model: SequenceModel, length: int, device: torch.device, dtype: torch.dtype) -> float | None:
    """Return the tokens per second at an mfu of 100 %: all GPUs at their peak; None if the peak is unknown."""
    peak = peak_flops(torch.cuda.get_device_name(device)) if device.type == "cuda" and dtype in HALF_DTYPES else None
    return None if peak is None else tokens_per_second_at(peak * get_world_size(), model, length)


def tokens_per_second_at(flops: float, model: SequenceModel, length: int) -> float:
    """Return the tokens per second of training at this number of FLOP/s, with rows of this length."""
    return flops * length / sizes(model, length).total.training


PROBE_ROWS = 8
PROBE_METRICS = (
    "share", "gate_fw", "gate_kv", "norm_fw", "norm_kv", "state_norm", "state_rank", "erase", "keep", "forget",
    "entropy",
)  # fmt: skip


def is_probe_due(train: TrainConfig, step: int, has_validated: bool, is_finished: bool) -> bool:
    """Return whether to probe the memories after this step."""
    if train.probe_every is None:
        return has_validated
    return train.probe_every > 0 and (step % train.probe_every == 0 or is_finished)


def probe_module(trainer: Trainer, module: TrainingModule) -> Probes:
    """Probe the memories of the model on validation examples, in the precision of training."""
    assert isinstance(module.model, SequenceModel)
    with trainer.precision_plugin.val_step_context():
        return probe_split(module.model, module.task, "valid")


def probe_split(model: SequenceModel, task: Task, split: Split) -> Probes:
    """Probe the memories of a model on the first rows of a split."""
    batch = task.get_examples(split, 0, 0, min(PROBE_ROWS, task.eval_size))
    valid_mask = torch.arange(batch.tokens.shape[1]) < (batch.lengths - task.unread_tokens)[:, None]
    device = next(model.parameters()).device
    doc_start = task.document_starts(batch.tokens)
    layout = Layout(valid_mask.to(device), None if doc_start is None else doc_start.to(device))
    return probe(model, batch.tokens.to(device), layout)


def layer_means(probes: Probes) -> Metrics:
    """Return the mean of each probe over the heads of a layer, leaving out means that are not finite."""
    return {
        f"probe/layer_{index}/{name}": value
        for index, layer in enumerate(probes.layers)
        for name in PROBE_METRICS
        if name in layer and math.isfinite(value := fmean(layer[name]))
    }


class RunCallback(Callback):
    """Records backends and the determinism check at the start of a run, and acts after each optimizer step."""

    def __init__(self, cell: Cell, folder: Path, trainer_state: TrainerState, on_metrics: MetricsCallback) -> None:
        self.cell, self.folder, self.trainer_state, self.on_metrics = cell, folder, trainer_state, on_metrics
        self.probe_writer = ProbeWriter(folder)
        self.timer, self.last_logged_step, self.seconds_since_log = TrainingTimer(trainer_state), 0, 0.0
        self.tokens_since_log = 0  # of all processes
        self.mfu_tokens_per_second: float | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        module = as_training_module(pl_module)
        module.stop_handler.install_handlers()
        self.record_backends(trainer, module)
        if self.cell.trainer.check_determinism and trainer.global_step == 0:
            self.check_determinism(trainer, module)
        module.stop_handler.is_training = True
        self.timer.add_other_time()
        self.last_logged_step, self.seconds_since_log, self.tokens_since_log = trainer.global_step, 0.0, 0

    def record_backends(self, trainer: Trainer, module: TrainingModule) -> None:
        """Write the backends that are selected for training rows, and compute the peak tokens per second."""
        device, precision = trainer.strategy.root_device, str(trainer.precision)
        model, tokens, dtype = module.model, module.task.sequence_length("train"), compute_dtype(precision)
        assert isinstance(model, SequenceModel)
        backends = None
        recording = record_analysis_failure(self.trainer_state, "Backends", is_before_training=True)
        with gather_parameters(model), recording:
            backends = layer_backends(model, tokens, device.type, dtype)
            self.mfu_tokens_per_second = peak_tokens_per_second(model, tokens, device, dtype)
        if trainer.is_global_zero and backends is not None:
            write_backends(self.folder, device.type, precision, backends)

    def check_determinism(self, trainer: Trainer, module: TrainingModule) -> None:
        """Run the determinism check, write its result, and note a warning if determinism was requested and failed."""
        check = compare_first_step(trainer, module)
        record_determinism_check(check, self.cell, self.trainer_state, self.folder if trainer.is_global_zero else None)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        as_training_module(pl_module).stop_handler.is_training = False

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: MicroBatch, batch_idx: int
    ) -> None:
        self.tokens_since_log += batch.tokens.numel() * get_world_size()
        if batch.micro_step + 1 == self.cell.train.accumulate:
            self.seconds_since_log += self.timer.add_training_time()
            self.on_optimizer_step_end(trainer, as_training_module(pl_module), trainer.global_step)
            self.timer.add_other_time()

    def on_optimizer_step_end(self, trainer: Trainer, module: TrainingModule, step: int) -> None:
        """Log, validate, probe, save and stop, as due after this optimizer step."""
        train = self.cell.train
        set_evaluation_step(module.model, train, step)
        if step % train.log_every == 0:
            self.record_metrics(trainer, step, module.step_metrics | self.speed_metrics(step))
        if validated := step % train.valid_every == 0 or step == train.steps:
            self.validate_model(trainer, module, step)
        if is_probe_due(train, step, validated, self.trainer_state.finished):
            with gather_parameters(module.model):
                self.probe_memories(trainer, module, step)
        stop = module.stop_handler.stop_agreed
        if step % train.checkpoint_every == 0 or self.trainer_state.finished or stop:
            self.timer.add_other_time()
            save_last_checkpoint(trainer, self.folder)
        if stop:
            raise stopped_after_saving(step)

    def speed_metrics(self, step: int) -> Metrics:
        """Return steps and tokens per second since the last log, padding included, and the mfu in percent if known."""
        steps_per_second = (step - self.last_logged_step) / self.seconds_since_log
        tokens_per_second = self.tokens_since_log / self.seconds_since_log
        self.last_logged_step, self.seconds_since_log, self.tokens_since_log = step, 0.0, 0
        speed = {"speed/steps_per_second": steps_per_second, "speed/tokens_per_second": tokens_per_second}
        if self.mfu_tokens_per_second is not None:
            speed["speed/mfu"] = 100 * tokens_per_second / self.mfu_tokens_per_second
        return speed

    def validate_model(self, trainer: Trainer, module: TrainingModule, step: int) -> None:
        """Score the validation splits, save the weights if they are the best, and finish if the goal is reached."""
        valid = add_prefix("valid", score_module(trainer, module, "valid").metrics)
        if "short" in module.task.splits:
            short = score_module(trainer, module, "short").metrics
            valid |= {f"valid/short_{name}": value for name, value in short.items() if "/" not in name}
        self.record_metrics(trainer, step, valid)
        metrics = valid | {"train/loss": module.step_metrics["train/loss"]}
        if record_validation(self.trainer_state, self.cell, step, metrics):
            save_best_weights(trainer, self.folder)
        if is_solved(metrics, self.cell):
            trainer.should_stop = True

    def probe_memories(self, trainer: Trainer, module: TrainingModule, step: int) -> None:
        """Probe the memories in rank 0 and record the result; the other processes do not wait for it."""
        if not trainer.is_global_zero:
            return
        probes = None
        with record_analysis_failure(self.trainer_state, "Probes"):
            probes = probe_module(trainer, module)
        if probes is not None:
            self.record_metrics(trainer, step, layer_means(probes))
            self.probe_writer.write_table(step, probes.layers)

    def record_metrics(self, trainer: Trainer, step: int, metrics: Metrics) -> None:
        """Pass metrics to `on_metrics`, in rank 0 only."""
        if trainer.is_global_zero:
            self.on_metrics(step, metrics)


def score_module(trainer: Trainer, module: TrainingModule, split: Split) -> Score:
    """Score the model on a fixed split, in the precision of training."""
    with trainer.precision_plugin.val_step_context(), gather_parameters(module.model):
        train = module.cell.train
        return score_model(module.model, module.task, split, train.eval_batch_size, train.head)


def as_training_module(lightning_module: LightningModule) -> TrainingModule:
    """Narrow the type of the module that Lightning passes to hooks."""
    assert isinstance(lightning_module, TrainingModule)
    return lightning_module
