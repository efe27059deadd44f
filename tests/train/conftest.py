"""A cell that trains in a second, and a metrics log that can interrupt it."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.run_settings import MeasureConfig, TrainConfig, TrainerConfig

# rows have different numbers of labels, so only a loss normalized over the whole batch equals that of micro-batches
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
TINY_TRAIN = {
    "steps": 12,
    "batch_size": 12,
    "valid_every": 6,
    "checkpoint_every": 4,
    "log_every": 1,
    "eval_batch_size": 16,
}


def tiny_cell(
    task: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    devices: int = 1,
    precision: Any = "auto",
    measure: dict[str, Any] | None = None,
    trainer: dict[str, Any] | None = None,
    seed: int = 0,
    **train: Any,
) -> Cell:
    """Return a small cell with these changes."""
    return Cell(
        task=TASK | (task or {}),
        model=MODEL | (model or {}),
        train=TrainConfig(**(TINY_TRAIN | train)),
        trainer=TrainerConfig(**({"accelerator": "cpu", "devices": devices, "precision": precision} | (trainer or {}))),
        measure=MeasureConfig(**(measure or {})),
        seed=seed,
    )


class MetricsLog(list[tuple[int, dict[str, float]]]):
    """A `on_metrics` for `fit` that stores the points, and sends SIGTERM once a given step is logged."""

    def __init__(self, stop_at: int | None = None) -> None:
        super().__init__()
        self.stop_at = stop_at

    def __call__(self, step: int, metrics: dict[str, float]) -> None:
        self.append((step, metrics))
        if step == self.stop_at and "train/loss" in metrics:
            os.kill(os.getpid(), signal.SIGTERM)

    def timeless_points(self) -> list[tuple[int, str, float]]:
        """Return every point that does not depend on the clock."""
        return [
            (step, name, value)
            for step, metrics in self
            for name, value in metrics.items()
            if not name.startswith("speed/")
        ]


def last_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return the weights of the last checkpoint."""
    return torch.load(folder / "last.ckpt", weights_only=True)["state_dict"]


def equal_weights(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    """Return whether two sets of weights are equal, bit for bit."""
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"
