"""Lightning's Trainer, lean and quiet: no logger, no bar, no checkpoints and no validation of its own."""

import logging
import os
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
from hqlt_lab.experiment.settings import TrainerConfig
from hqlt_lab.train.checkpoints import InPlace
from hqlt_lab.train.sharding import Sharded

PRECISION: dict[str, Any] = {"32": "32-true", "64": "64-true"}
REPEATING_PRODUCTS = ":4096:8"  # workspaces of cuBLAS with which it promises the same bits every time
KNOWN = (
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # Lightning 2.6 with torch 2.13, several processes
    r"`torch.jit.script_method` is deprecated",  # torch 2.13, when it first compiles
    r"The `srun` command is available",  # Lightning, on every machine that has SLURM
)


def trainer_for(cell: Cell, steps: int, folder: Path, watch: Callback) -> Trainer:
    """A trainer that takes so many steps and leaves everything else to `watch`."""
    # torch looks once, at a process's first product on a GPU.  Lightning sets it for a deterministic cell, which is too
    # late in a worker that has trained another one before
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", REPEATING_PRODUCTS)
    return Trainer(
        max_steps=steps,
        max_epochs=-1,
        accelerator=accelerator(cell.trainer),
        devices=cell.trainer.devices,
        num_nodes=cell.trainer.nodes,
        strategy=strategy(cell.trainer),
        **numbers(cell.trainer),
        plugins=plugins(cell.trainer),
        deterministic=cell.trainer.deterministic,
        accumulate_grad_batches=cell.train.accumulate,
        callbacks=[watch],
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        limit_val_batches=0,
        num_sanity_val_steps=0,
    )


def accelerator(settings: TrainerConfig) -> str:
    """By Lightning's names.  A GPU is one that torch calls cuda: Apple's has no 64-bit numbers, which we need."""
    return "cuda" if on_gpu(settings) else "cpu"


def on_gpu(settings: TrainerConfig) -> bool:
    """Whether the cell asks for a GPU, or takes what there is and there is one."""
    return settings.accelerator == "gpu" or (settings.accelerator == "auto" and torch.cuda.is_available())


def strategy(settings: TrainerConfig) -> Any:
    """What Lightning is told; a single process has nothing to share."""
    processes = settings.devices * settings.nodes
    if settings.strategy != "fsdp2":
        return settings.strategy
    return Sharded(processes) if processes > 1 else "auto"


def numbers(settings: TrainerConfig) -> dict[str, Any]:
    """The trainer's option that says how precise to be; 64 bits are a plugin."""
    told = precision(settings)
    return {} if told == PRECISION["64"] else {"precision": told}


def plugins(settings: TrainerConfig) -> list[Any]:
    """With shares Lightning takes 64 bits only as a plugin; a process that is alone must not look for others.

    In a job of SLURM's it would: refuse one that has several tasks (--ntasks), and take SIGUSR1 for itself.
    """
    alone = [LightningEnvironment()] if settings.devices * settings.nodes == 1 else []
    return [InPlace(), *alone, *([DoublePrecision()] if precision(settings) == PRECISION["64"] else [])]


def precision(settings: TrainerConfig) -> Any:
    """The name that Lightning has for it."""
    gpu = on_gpu(settings) and torch.cuda.is_available()
    if settings.precision == "16-mixed" and not gpu:  # Lightning would take another one
        raise ConfigError("trainer.precision: '16-mixed' needs a GPU. Use 'bf16-mixed', '32' or 'auto'.")
    if settings.precision == "16-mixed" and settings.strategy == "fsdp2":
        raise ConfigError("trainer.precision: '16-mixed' does not go with strategy 'fsdp2'. Use 'bf16-mixed' or 'ddp'.")
    if settings.precision == "auto":
        return "bf16-mixed" if gpu else "32-true"
    return PRECISION.get(settings.precision, settings.precision)


def working_dtype(precision: str) -> torch.dtype:
    """What the layers compute in, by Lightning's name of the precision."""
    bits = precision.split("-")[0]
    return {"16": torch.float16, "bf16": torch.bfloat16, "64": torch.float64}.get(bits, torch.float32)


@contextmanager
def quiet() -> Iterator[None]:
    """Without tips and adverts, and without the warnings that are known and not ours."""
    log = logging.getLogger("lightning.pytorch")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for known in KNOWN:
                warnings.filterwarnings("ignore", message=known)
            yield
    finally:
        log.setLevel(level)
