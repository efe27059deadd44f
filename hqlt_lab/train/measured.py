"""What a step of a cell and a look at its examples really take here: some of them, run in a process of their own.

python -m hqlt_lab.train.measured < CELL.json        what that process runs
"""

import json
import subprocess
import sys
import time
from typing import Any, NamedTuple

from hqlt_lab.errors import TrainingError
from hqlt_lab.experiment.cell import Cell, cell_from
from hqlt_lab.registry import build


class Probe(NamedTuple):
    """What was measured of a cell."""

    step: float  # seconds
    row: float | None = None  # seconds that evaluating one example takes; None: as much as learning from it, by FLOPs
    memory: int | None = None  # peak bytes of a step


def measured(cell: Cell) -> Probe:
    """From a process of its own."""
    told = json.dumps(cell.as_dict())
    done = subprocess.run([sys.executable, "-m", "hqlt_lab.train.measured"], input=told, capture_output=True, text=True)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}"
        raise TrainingError(f"arm {cell.arm!r}: a step could not be run: {reason}")
    return Probe(*json.loads(done.stdout))


def timed(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def run_steps(cell: Cell) -> Probe:
    """Three steps of the cell here and now: the fastest of the last two, and the peak memory beyond what was there."""
    import torch

    from hqlt_lab.model.config import ModelConfig
    from hqlt_lab.model.initialise import initialise
    from hqlt_lab.model.sequence_model import SequenceModel
    from hqlt_lab.train.score import total_loss

    task = build("task", cell.task)
    if task.is_world:
        return run_turns(cell)
    config = ModelConfig(**cell.model, vocabulary=task.vocabulary)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    before = peak(device)
    model = SequenceModel(config)
    initialise(model, config, cell.seed)
    model.recompute(cell.train.recompute).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cell.train.lr)
    rows = cell.train.batch_size // cell.train.accumulate
    batch = task.examples("train", cell.seed, 0, rows)

    def step() -> None:
        for _ in range(cell.train.accumulate):
            total_loss(model, task, batch.tokens.to(device), batch.labels.to(device)).backward()
        optimizer.step()
        optimizer.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()

    seconds = [timed(step) for _ in range(3)]
    memory = peak(device) - before
    rows = min(cell.train.eval_batch_size, task.eval_size)
    asked = task.examples("valid", cell.seed, 0, rows)

    @torch.no_grad()
    def look() -> None:
        total_loss(model.eval(), task, asked.tokens.to(device), asked.labels.to(device)).item()

    return Probe(min(seconds[1:]), min(timed(look) for _ in range(2)) / rows, memory)


def run_turns(cell: Cell) -> Probe:
    """The same in a world: acting in one episode or as many as are lived at once, and the updates it is worth."""
    from dataclasses import replace
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from hqlt_lab.train.life import Life

    assert cell.agent is not None
    with TemporaryDirectory() as folder:
        at_once = cell.agent.episodes_at_once
        soon = replace(cell, agent=replace(cell.agent, warmup_episodes=at_once))
        life = Life(soon, build("task", cell.task), Path(folder))
        device = life.agent.device.type
        before = peak(device)
        life.live()  # at random, and the memory is not asked
        lived, learned = timed(life.live), min([timed(life.learn) for _ in range(3)][1:])
        step = lived * 2 / life.counts.steps + cell.agent.updates_per_step * learned
        return Probe(step, None, peak(device) - before)


def peak(device: str) -> int:
    """The most bytes that were ever in use."""
    import resource

    import torch

    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    asked = cell_from(json.load(sys.stdin))
    print(json.dumps(run_steps(asked)))
