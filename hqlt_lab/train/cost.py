"""What a cell will cost: estimated from its size, or measured by running two full-size steps of it.

Estimated: the FLOPs of its products, counted part by part (`model/sizes.py`), at a quarter of the speed of a large
matrix product on one core or GPU, which is what a cell of a study has, and the time in which so many layers, and steps
of rules that go step by step, begin their operations.  Rough: half or twice as much is no surprise.  Measured
(`train/measured.py`): steps and a piece of an evaluation, each composition in a process of its own, so that its peak
memory is its own.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import TYPE_CHECKING

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.composition import on_meta
from hqlt_lab.experiment.plan import Planned
from hqlt_lab.model.sizes import Sizes, sizes
from hqlt_lab.registry import build
from hqlt_lab.tasks._base import Split
from hqlt_lab.train.measured import Probe, measured, timed

if TYPE_CHECKING:
    from torch import Tensor

EFFICIENCY = 0.25
LIVED = 5  # bytes of a step that was lived, besides what was seen
# what small models spend on beginning operations, in small ones of which nothing is kept, there; about twice that back
STEP, LAYER = 200, 1300  # for one step of a rule, and for a layer


@dataclass(frozen=True)
class Cost:
    """Of one cell."""

    sizes: Sizes  # for the longest row that it trains on
    tokens: int  # that it learns from, padding included
    step: float  # seconds
    seconds: float  # of all steps and evaluations
    disk: int  # bytes of checkpoints, while it runs
    memory: int | None = None  # peak bytes of a step, if measured


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
    updates = 1.0 if cell.agent is None else cell.agent.updates_per_step
    rows = cell.train.batch_size * updates  # per step
    training = rows * found["train"].total.training
    looks = -(-cell.train.steps // cell.train.valid_every)
    forward = {split: found[split].total.forward for split in task.splits}
    evaluating = task.eval_size * (looks * (forward.get("short", 0) + forward["valid"]) + forward["test"])
    probed = measured(cell) if measure else estimated(cell, found, updates)
    look = evaluating * (probed.step / training if probed.row is None else probed.row / forward["valid"])
    seconds = probed.step * cell.train.steps + look
    disk = 2 * 3 * 4 * found["train"].total.parameters  # the last two checkpoints: weights and Adam's two averages
    tokens = int(cell.train.steps * rows * task.tokens_in("train"))
    if cell.agent is not None:
        disk += cell.train.steps * (prod(task.shape) + LIVED)
    return Cost(found["train"], tokens, probed.step, seconds, disk, probed.memory)


def estimated(cell: Cell, found: Mapping[str, Sizes], updates: float) -> Probe:
    """From the FLOPs of a step and of a validation example, and from what is done step by step."""
    train = cell.train
    learning = updates * train.batch_size * found["train"].total.training / speed()
    learning += updates * train.accumulate * 3 * beginning(cell, found["train"])
    asked = min(train.eval_batch_size, build("task", cell.task).eval_size)  # go through at once
    return Probe(learning, found["valid"].total.forward / speed() + beginning(cell, found["valid"]) / asked)


def beginning(cell: Cell, found: Sizes) -> float:
    """Seconds that are spent on beginning one operation after the other, however small they are."""
    return (STEP * found.in_turn + LAYER * int(cell.model["layers"])) * pause()


def sizes_of(cell: Cell, *splits: Split) -> dict[str, Sizes]:
    """Of its model, for the longest rows of these splits."""
    task = build("task", cell.task)
    model = on_meta(cell, task.vocabulary).use(cell.ops)
    lengths = {split: task.tokens_in(split) for split in splits}
    known = {length: sizes(model, length) for length in set(lengths.values())}
    return {split: known[length] for split, length in lengths.items()}


@cache
def speed() -> float:
    """FLOPs per second that a model can hope for here, on one core or GPU."""
    return EFFICIENCY * 2 * 1024**3 / one_core(1024, 1, lambda matrix: matrix @ matrix)


@cache
def pause() -> float:
    """Seconds until the next small operation begins."""
    return one_core(16, 100, lambda matrix: matrix * matrix)


def one_core(size: int, times: int, act: Callable[["Tensor"], "Tensor"]) -> float:
    """Seconds that an operation on a square matrix takes on one core or GPU, the best of three looks at so many."""
    import torch

    matrix = torch.randn(size, size, device="cuda" if torch.cuda.is_available() else "cpu")
    threads = torch.get_num_threads()

    def look() -> None:
        for _ in range(times):
            made = act(matrix)
        made.sum().item()

    torch.set_num_threads(1)
    best = min(timed(look) for _ in range(3)) / times
    torch.set_num_threads(threads)
    return best
