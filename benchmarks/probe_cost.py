"""What looking into the memories costs a run: the time of one look, spread over the steps between two of them.

    cost = time of a look / (steps between two validations * time of a training step)

Steps and looks take turns in one run, so that both meet the same machine; medians count.  For a model as in
`experiments/first_run.yaml` and for a larger one, with its batch and its steps between two validations.

    python benchmarks/probe_cost.py [turns]
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import hqlt_lab as lab
from hqlt_lab.train.probing import look_at
from hqlt_lab.train.score import total_loss

MODELS: dict[str, dict[str, Any]] = {
    "first_run": {"width": 64, "heads": 2, "layers": 2},
    "larger": {"width": 256, "heads": 8, "layers": 6, "mixer": "vector"},
}
BATCH, VALID_EVERY = 128, 50  # those of first_run


def seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measure(name: str, settings: dict[str, Any], turns: int) -> None:
    """Steps and looks of one model."""
    task = lab.build("task", {"name": "parity", "train_length": [3, 40], "test_length": [40, 256]})
    rule, timing = {"name": "delta", "max_beta": 2}, {"name": "synchronous", "window": 8}
    model = lab.build_model(vocabulary=task.vocabulary, **settings, update_rule=rule, timing=timing)
    optimiser = torch.optim.AdamW(model.parameters())
    batch = task.examples("train", 0, 0, BATCH)

    def step() -> None:
        optimiser.zero_grad()
        total_loss(model(batch.tokens)[0], batch.labels).backward()
        optimiser.step()

    step(), look_at(model, task, "valid")
    steps, looks = [], []
    for _ in range(turns):
        steps += [seconds(step) for _ in range(3)]
        looks.append(seconds(lambda: look_at(model, task, "valid")))
    a_step, a_look = statistics.median(steps), statistics.median(looks)
    told = {"model": name, "step_ms": round(1000 * a_step, 1), "look_ms": round(1000 * a_look, 1)}
    print(json.dumps(told | {"cost": f"{100 * a_look / (VALID_EVERY * a_step):.2f} %"}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, settings in MODELS.items():
        measure(name, settings, int(sys.argv[1]) if len(sys.argv) > 1 else 10)
