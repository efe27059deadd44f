"""What Lightning and the lab's care cost: `fit` against a bare PyTorch loop on the same model and batches.

    python benchmarks/train_overhead.py [--json] [--rounds 5] [--steps 100]

Both learn from the same batches with the same optimiser and clipping, in turns within one process; the best round of
each counts, and validation is left out of both.  `fit` also measures, guards, logs and reseeds, which a bare loop does
not.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.settings import TrainConfig, TrainerConfig
from hqlt_lab.registry import build
from hqlt_lab.train.fit import build_model, fit
from hqlt_lab.train.optimiser import adamw


def cell_of(steps: int) -> Cell:
    """A step of about 20 ms on one core."""
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


def bare(cell: Cell) -> float:
    """Seconds per step of a plain loop."""
    task = build("task", cell.task)
    model = build_model(cell, task)
    optimizer, rows = adamw(model, cell.train), cell.train.batch_size
    start = time.perf_counter()
    for step in range(cell.train.steps):
        batch = task.examples("train", cell.seed, step * rows, rows)
        logits, _ = model(batch.tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), cell.train.clip or float("inf"))
        optimizer.step()
    return (time.perf_counter() - start) / cell.train.steps


def with_lightning(cell: Cell) -> float:
    """Seconds per step of `fit`, by its own clock, which leaves validation and saving out."""
    with tempfile.TemporaryDirectory() as folder:
        pace = fit(cell, Path(folder)).tokens_per_second
    return cell.train.batch_size * build("task", cell.task).tokens_in("train") / pace


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    cell = cell_of(asked.steps)
    rounds = [(bare(cell), with_lightning(cell)) for _ in range(asked.rounds)]
    plain, lab = (1000 * min(times) for times in zip(*rounds, strict=True))
    found = {"bare_ms": plain, "fit_ms": lab, "overhead_percent": 100 * (lab / plain - 1)}
    told = (f"{name:18}{value:8.2f}" for name, value in found.items())
    print(json.dumps(found) if asked.json else "\n".join(told))


if __name__ == "__main__":
    main()
