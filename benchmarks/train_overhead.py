"""Overhead of Lightning and the lab: `fit` compared with a plain PyTorch loop on the same model and batches.

    python benchmarks/train_overhead.py [--json] [--rounds 5] [--steps 100]

Both use the same batches, optimizer and gradient clipping, and alternate within one process.  The best round of each
counts, and both exclude validation.  `fit` also measures, checks for divergence, logs and reseeds, unlike a plain loop.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.run_settings import TrainConfig, TrainerConfig
from hqlt_lab.registry import build
from hqlt_lab.train.fit import build_model, fit
from hqlt_lab.train.optim import build_adamw


def make_cell(steps: int) -> Cell:
    """Return a cell whose training step takes about 20 ms on one core."""
    return Cell(
        task={"name": "parity", "train_length": [3, 40], "test_length": [3, 40], "eval_size": 1},
        model={
            "width": 64,
            "heads": 2,
            "layers": 1,
            "update_rule": {"name": "delta", "max_beta": 2},
            "timing": {"name": "synchronous", "window": 8},
            "positions": "none",
        },
        train=TrainConfig(
            steps=steps, batch_size=20, schedule="constant", valid_every=steps, checkpoint_every=steps, log_every=10
        ),
        trainer=TrainerConfig(accelerator="cpu"),
    )


def time_bare_loop(cell: Cell) -> float:
    """Return the seconds per step of a plain PyTorch loop."""
    task = build("task", cell.task)
    model = build_model(cell, task)
    optimizer, rows = build_adamw(model, cell.train), cell.train.batch_size
    start = time.perf_counter()
    for step in range(cell.train.steps):
        batch = task.get_examples("train", cell.seed, step * rows, rows)
        logits, _ = model(batch.tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), cell.train.clip or float("inf"))
        optimizer.step()
    return (time.perf_counter() - start) / cell.train.steps


def time_lightning(cell: Cell) -> float:
    """Return the seconds per step of `fit` by its own measurement, which excludes validation and checkpoints."""
    with tempfile.TemporaryDirectory() as folder:
        tokens_per_second = fit(cell, Path(folder)).tokens_per_second
    return cell.train.batch_size * build("task", cell.task).sequence_length("train") / tokens_per_second


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    cell = make_cell(options.steps)
    rounds = [(time_bare_loop(cell), time_lightning(cell)) for _ in range(options.rounds)]
    bare_ms, fit_ms = (1000 * min(times) for times in zip(*rounds, strict=True))
    result = {"bare_ms": bare_ms, "fit_ms": fit_ms, "overhead_percent": 100 * (fit_ms / bare_ms - 1)}
    lines = (f"{name:18}{value:8.2f}" for name, value in result.items())
    print(json.dumps(result) if options.json else "\n".join(lines))


if __name__ == "__main__":
    main()
