"""Overhead of the probes that a run records at each validation.

    cost = time of a probe / (steps between two validations * time of a training step)

Steps and probes alternate in one run, so that both see the same machine load.  Medians count.  Measured for the model
of `experiments/first_run.yaml` and for a larger one, with the batch size and validation interval of the former.

    python benchmarks/probe_cost.py [rounds]
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import hqlt_lab as lab
from hqlt_lab.train.scoring import total_loss
from hqlt_lab.train.training_callback import probe_split

MODELS: dict[str, dict[str, Any]] = {
    "first_run": {"width": 64, "heads": 2, "layers": 2},
    "larger": {"width": 256, "heads": 8, "layers": 6, "mixer": "vector"},
}
BATCH, VALID_EVERY = 128, 50  # as in first_run.yaml


def time_call(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def measure_model(name: str, settings: dict[str, Any], rounds: int) -> None:
    """Measure training steps and probes of one model."""
    task = lab.build("task", {"name": "parity", "train_length": [3, 40], "test_length": [40, 256]})
    rule, timing = {"name": "delta", "max_beta": 2}, {"name": "synchronous", "window": 8}
    model = lab.build_model(vocabulary=task.vocabulary, **settings, update_rule=rule, timing=timing)
    optimizer = torch.optim.AdamW(model.parameters())
    batch = task.get_examples("train", 0, 0, BATCH)

    def train_step() -> None:
        optimizer.zero_grad()
        total_loss(model, task, batch.tokens, batch.labels).backward()
        optimizer.step()

    train_step(), probe_split(model, task, "valid")
    step_times, probe_times = [], []
    for _ in range(rounds):
        step_times += [time_call(train_step) for _ in range(3)]
        probe_times.append(time_call(lambda: probe_split(model, task, "valid")))
    step, probe = statistics.median(step_times), statistics.median(probe_times)
    row = {"model": name, "step_ms": round(1000 * step, 1), "probe_ms": round(1000 * probe, 1)}
    print(json.dumps(row | {"cost": f"{100 * probe / (VALID_EVERY * step):.2f} %"}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, settings in MODELS.items():
        measure_model(name, settings, int(sys.argv[1]) if len(sys.argv) > 1 else 10)
