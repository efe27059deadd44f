"""Build a minimal Lightning Trainer: without its logger, progress bar, checkpointing and validation loop."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.plugins import DoublePrecision
from lightning.pytorch.plugins.environments import LightningEnvironment

from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.run_settings import TrainerConfig
from hqlt_lab.process_settings import TRAINING_ENV, set_env_defaults
from hqlt_lab.train.checkpoints.checkpoint_io import DirectCheckpointIO
from hqlt_lab.train.distributed.fsdp import Fsdp2Strategy

LIGHTNING_PRECISIONS: dict[str, Any] = {"32": "32-true", "64": "64-true"}
IGNORED_WARNINGS = (
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # Lightning 2.6 with torch 2.13, several processes
    r"`torch.jit.script_method` is deprecated",  # torch 2.13, when it first compiles
    r"The `srun` command is available",  # Lightning, on every machine that has SLURM
)


def build_trainer(cell: Cell, steps: int, folder: Path, callback: Callback) -> Trainer:
    """Return a Trainer that runs to this number of steps; `callback` does everything else."""
    set_env_defaults(TRAINING_ENV)
    return Trainer(
        max_steps=steps,
        max_epochs=-1,
        accelerator=lightning_accelerator(cell.trainer),
        devices=cell.trainer.devices,
        num_nodes=cell.trainer.nodes,
        strategy=lightning_strategy(cell.trainer),
        **precision_option(cell.trainer),
        plugins=lightning_plugins(cell.trainer),
        deterministic=cell.trainer.deterministic,
        accumulate_grad_batches=cell.train.accumulate,
        callbacks=[callback],
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        limit_val_batches=0,
        num_sanity_val_steps=0,
    )


def lightning_accelerator(settings: TrainerConfig) -> str:
    """Return Lightning's name of the accelerator.  Only CUDA counts as GPU: Apple's MPS has no float64."""
    return "cuda" if can_use_gpu(settings) else "cpu"


def can_use_gpu(settings: TrainerConfig) -> bool:
    """Return whether the cell requires a GPU, or accepts any device and a GPU is available."""
    return settings.accelerator == "gpu" or (settings.accelerator == "auto" and torch.cuda.is_available())


def lightning_strategy(settings: TrainerConfig) -> Any:
    """Return the strategy for Lightning; a single process needs no sharding."""
    processes = settings.devices * settings.nodes
    if settings.strategy != "fsdp2":
        return settings.strategy
    return Fsdp2Strategy(processes) if processes > 1 else "auto"


def precision_option(settings: TrainerConfig) -> dict[str, Any]:
    """Return the precision argument of the Trainer; float64 is set by a plugin instead."""
    precision = lightning_precision(settings)
    return {} if precision == LIGHTNING_PRECISIONS["64"] else {"precision": precision}


def lightning_plugins(settings: TrainerConfig) -> list[Any]:
    """Return the plugins of the Trainer.

    Float64 is a plugin because Lightning's fsdp2 strategy accepts it in no other way.  A single process gets
    LightningEnvironment: otherwise, in a SLURM job, Lightning would reject several tasks (--ntasks) and handle SIGUSR1.
    """
    single_process = [LightningEnvironment()] if settings.devices * settings.nodes == 1 else []
    return [
        DirectCheckpointIO(),
        *single_process,
        *([DoublePrecision()] if lightning_precision(settings) == LIGHTNING_PRECISIONS["64"] else []),
    ]


def lightning_precision(settings: TrainerConfig) -> Any:
    """Return Lightning's name of the precision.  Raise ConfigError if it is not available."""
    gpu = can_use_gpu(settings) and torch.cuda.is_available()
    if settings.precision == "16-mixed" and not gpu:  # Lightning would silently use another precision
        hint = "Use 'bf16-mixed', '32' or 'auto'."
        raise ConfigError.at("trainer.precision", "precision_needs_gpu", "'16-mixed' needs a GPU.", hint)
    if settings.precision == "16-mixed" and settings.strategy == "fsdp2":
        message = "'16-mixed' cannot be used with strategy 'fsdp2'."
        raise ConfigError.at("trainer.precision", "precision_with_fsdp2", message, "Use 'bf16-mixed' or 'ddp'.")
    if settings.precision == "auto":
        return "bf16-mixed" if gpu else "32-true"
    return LIGHTNING_PRECISIONS.get(settings.precision, settings.precision)


def compute_dtype(precision: str) -> torch.dtype:
    """Return the dtype that layers compute in, from Lightning's name of the precision."""
    bits = precision.split("-")[0]
    return {"16": torch.float16, "bf16": torch.bfloat16, "64": torch.float64}.get(bits, torch.float32)


@contextmanager
def silence_lightning() -> Iterator[None]:
    """Suppress Lightning's info messages and the known warnings of other libraries within the context."""
    log = logging.getLogger("lightning.pytorch")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for pattern in IGNORED_WARNINGS:
                warnings.filterwarnings("ignore", message=pattern)
            yield
    finally:
        log.setLevel(level)
