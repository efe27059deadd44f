"""What a cell will cost: estimated from its size, or measured by running two full-size steps of it.

Estimated: the FLOPs of its products, counted part by part (`model/sizes.py`), at a quarter of the speed of a large
matrix product on one core or GPU, which is what a cell of a study has.  Rough: small models are slower than that, and
so are rules that go step by step; large models are faster.  Measured: steps and a piece of an evaluation, each
composition in a process of its own, so that its peak memory is its own.

    python -m hqlt_lab.train.cost < CELL.json        what the measuring process runs
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, NamedTuple

from hqlt_lab.errors import TrainingError
from hqlt_lab.experiment.cell import Cell, cell_from
from hqlt_lab.experiment.composition import on_meta
from hqlt_lab.experiment.plan import Planned
from hqlt_lab.model.sizes import Sizes, sizes
from hqlt_lab.registry import build
from hqlt_lab.tasks._base import Split

EFFICIENCY = 0.25
LIVED = 5  # bytes of a step that was lived, besides what was seen


@dataclass(frozen=True)
class Cost:
    """Of one cell."""

    sizes: Sizes  # for the longest row that it trains on
    tokens: int  # that it learns from, padding included
    step: float  # seconds
    seconds: float  # of all steps and evaluations
    disk: int  # bytes of checkpoints, while it runs
    memory: int | None = None  # peak bytes of a step, if measured


class Probe(NamedTuple):
    """What was measured of a cell."""

    step: float  # seconds
    row: float | None = None  # seconds that evaluating one example takes; None: as much as learning from it, by FLOPs
    memory: int | None = None  # peak bytes of a step


def costs(planned: list[Planned], measure: bool) -> Iterator[tuple[str, list[Cell], Cost]]:
    """Each arm with its cells and the cost of one of them; an arm's cells differ in seed and tuned values only."""
    arms: dict[str, list[Cell]] = {}
    for one in planned:
        arms.setdefault(one.cell.arm, []).append(one.cell)
    for arm, cells in arms.items():
        yield arm, cells, cost(cells[0], measure)


def cost(cell: Cell, measure: bool) -> Cost:
    """Of one cell, measured or estimated."""
    task = build("task", cell.task)
    found = sizes_of(cell, *task.splits)
    rows = cell.train.batch_size * (1 if cell.agent is None else cell.agent.updates_per_step)  # per step
    training = rows * found["train"].total.training
    looks = -(-cell.train.steps // cell.train.valid_every)
    forward = {split: found[split].total.forward for split in task.splits}
    evaluating = task.eval_size * (looks * (forward.get("short", 0) + forward["valid"]) + forward["test"])
    probed = measured(cell) if measure else Probe(training / speed())
    look = evaluating * (probed.step / training if probed.row is None else probed.row / forward["valid"])
    seconds = probed.step * cell.train.steps + look
    disk = 2 * 3 * 4 * found["train"].total.parameters  # the last two checkpoints: weights and Adam's two averages
    tokens = int(cell.train.steps * rows * task.tokens_in("train"))
    if cell.agent is not None:
        disk += cell.train.steps * (prod(task.shape) + LIVED)
    return Cost(found["train"], tokens, probed.step, seconds, disk, probed.memory)


def sizes_of(cell: Cell, *splits: Split) -> dict[str, Sizes]:
    """Of its model, for the longest rows of these splits."""
    task = build("task", cell.task)
    model = on_meta(cell, task.vocabulary)
    lengths = {split: task.tokens_in(split) for split in splits}
    known = {length: sizes(model, length) for length in set(lengths.values())}
    return {split: known[length] for split, length in lengths.items()}


@cache
def speed() -> float:
    """FLOPs per second that a model can hope for here, on one core or GPU."""
    import torch

    matrix, threads = (
        torch.randn(1024, 1024, device="cuda" if torch.cuda.is_available() else "cpu"),
        torch.get_num_threads(),
    )
    torch.set_num_threads(1)
    best = min(timed(lambda: (matrix @ matrix).sum().item()) for _ in range(3))
    torch.set_num_threads(threads)
    return EFFICIENCY * 2 * 1024**3 / best


def timed(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measured(cell: Cell) -> Probe:
    """From a process of its own."""
    told = json.dumps(cell.as_dict())
    done = subprocess.run([sys.executable, "-m", "hqlt_lab.train.cost"], input=told, capture_output=True, text=True)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}"
        raise TrainingError(f"arm {cell.arm!r}: a step could not be run: {reason}")
    return Probe(*json.loads(done.stdout))


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
