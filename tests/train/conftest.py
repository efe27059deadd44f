"""A cell that trains in a second, and ways to break it off."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.settings import MeasureConfig, TrainConfig, TrainerConfig

# rows have different numbers of labels: only a loss over the whole batch is the same in pieces
TASK = {"name": "parity", "label": "every", "train_length": [3, 10], "test_length": [6, 16], "eval_size": 40}
MODEL = {
    "width": 16,
    "heads": 2,
    "layers": 1,
    "mlp_width": 16,
    "update_rule": {"name": "delta", "max_beta": 2},
    "timing": {"name": "synchronous", "window": 4},
    "positions": "none",
}
QUICK = {"steps": 12, "batch_size": 12, "valid_every": 6, "checkpoint_every": 4, "log_every": 1, "eval_batch_size": 16}


def tiny(
    task: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    devices: int = 1,
    precision: Any = "auto",
    measure: dict[str, Any] | None = None,
    trainer: dict[str, Any] | None = None,
    seed: int = 0,
    **train: Any,
) -> Cell:
    """A small run, with these changes."""
    return Cell(
        task=TASK | (task or {}),
        model=MODEL | (model or {}),
        train=TrainConfig(**(QUICK | train)),
        trainer=TrainerConfig(**({"accelerator": "cpu", "devices": devices, "precision": precision} | (trainer or {}))),
        measure=MeasureConfig(**(measure or {})),
        seed=seed,
    )


class Notebook(list[tuple[int, dict[str, float]]]):
    """A record that remembers, and sends a signal once some step was told."""

    def __init__(self, stop_at: int | None = None) -> None:
        super().__init__()
        self.stop_at = stop_at

    def __call__(self, step: int, metrics: dict[str, float]) -> None:
        self.append((step, metrics))
        if step == self.stop_at and "train/loss" in metrics:
            os.kill(os.getpid(), signal.SIGTERM)

    def curves(self) -> list[tuple[int, str, float]]:
        """Every point that does not depend on the clock."""
        return [(step, name, m[name]) for step, m in self for name in m if not name.startswith("speed/")]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """The weights in the last checkpoint."""
    return torch.load(folder / "last.ckpt", weights_only=True)["state_dict"]


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"
