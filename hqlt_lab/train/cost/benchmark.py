"""Measure the time of a training step and of an evaluation of a cell, and its peak memory, in a child process.

python -m hqlt_lab.train.cost.benchmark < CELL.json        the command of the child process
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from hqlt_lab.errors import TrainingError
from hqlt_lab.experiment.cell import Cell, cell_from_dict
from hqlt_lab.files import decode_json
from hqlt_lab.registry import build


class StepTiming(NamedTuple):
    """Time and memory of a training step of a cell."""

    step_seconds: float
    eval_row_seconds: float | None = None  # of evaluating one example; None: to be derived from step_seconds by FLOPs
    peak_memory_bytes: int | None = None  # of a step; None: not measured


def measure_step_timing(cell: Cell) -> StepTiming:
    """Measure a cell in a child process, so that its peak memory is its own.  Raise TrainingError if it fails."""
    command = [sys.executable, "-m", "hqlt_lab.train.cost.benchmark"]
    process = subprocess.run(command, input=json.dumps(cell.to_dict()), capture_output=True, text=True)
    if process.returncode:
        stderr = process.stderr.strip()
        reason = stderr.splitlines()[-1] if stderr else f"exit code {process.returncode}"
        raise TrainingError(f"arm {cell.arm!r}: a training step failed: {reason}")
    try:
        return StepTiming(*decode_json(process.stdout, list))
    except (ValueError, TypeError) as error:
        raise TrainingError(
            f"arm {cell.arm!r}: the benchmark process printed {process.stdout[-200:]!r} instead of a time."
        ) from error


def time_call(function: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def time_training_steps(cell: Cell) -> StepTiming:
    """Run three training steps and two evaluations of a cell in this process.

    Return the fastest of each; the first training step is a warm-up and does not count.
    """
    import torch

    from hqlt_lab.model.config import ModelConfig
    from hqlt_lab.model.initialize import initialize_parameters
    from hqlt_lab.model.sequence_model import SequenceModel
    from hqlt_lab.train.scoring import total_loss

    task = build("task", cell.task)
    if task.is_environment:
        return time_agent_iterations(cell)
    config = ModelConfig(**cell.model, vocabulary=task.vocabulary)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    memory_before = peak_memory(device)
    model = SequenceModel(config)
    initialize_parameters(model, config, cell.seed)
    model.set_recompute(cell.train.recompute).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cell.train.lr)
    rows = cell.train.batch_size // cell.train.accumulate
    batch = task.get_examples("train", cell.seed, 0, rows)

    def step() -> None:
        for _ in range(cell.train.accumulate):
            total_loss(model, task, batch.tokens.to(device), batch.labels.to(device), cell.train.head).backward()
        optimizer.step()
        optimizer.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()

    seconds = [time_call(step) for _ in range(3)]
    memory = peak_memory(device) - memory_before
    eval_rows = min(cell.train.eval_batch_size, task.eval_size)
    eval_batch = task.get_examples("valid", cell.seed, 0, eval_rows)

    @torch.no_grad()
    def evaluate() -> None:
        tokens, labels = eval_batch.tokens.to(device), eval_batch.labels.to(device)
        total_loss(model.eval(), task, tokens, labels, cell.train.head).item()

    return StepTiming(min(seconds[1:]), min(time_call(evaluate) for _ in range(2)) / eval_rows, memory)


def time_agent_iterations(cell: Cell) -> StepTiming:
    """Measure an agent: the time per environment step of collecting episodes and of the updates that belong to it."""
    from dataclasses import replace
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from hqlt_lab.train.rl.sac_trainer import SacTrainer

    assert cell.agent is not None
    with TemporaryDirectory() as folder:
        at_once = cell.agent.episodes_at_once
        short_warmup = replace(cell, agent=replace(cell.agent, warmup_episodes=at_once))
        sac_trainer = SacTrainer(short_warmup, build("task", cell.task), Path(folder))
        device = sac_trainer.agent.device.type
        memory_before = peak_memory(device)
        sac_trainer.collect_episodes()  # the warm-up: random actions, without the model
        collect_seconds = time_call(sac_trainer.collect_episodes)
        update_seconds = min([time_call(sac_trainer.update_weights) for _ in range(3)][1:])
        # collect_seconds is for about half of the environment steps so far
        step = collect_seconds * 2 / sac_trainer.counters.steps + cell.agent.updates_per_step * update_seconds
        return StepTiming(step, None, peak_memory(device) - memory_before)


def peak_memory(device: str) -> int:
    """Return the peak memory of this process in bytes, on the GPU if that is the device."""
    import resource

    import torch

    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    print(json.dumps(time_training_steps(cell_from_dict(decode_json(sys.stdin.read(), dict, allow_nan=True)))))
