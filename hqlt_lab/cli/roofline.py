"""The most tokens per second that cells could be trained at on known GPUs, as people and as programs read it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.table import Column, Table

from hqlt_lab.words import in_numbers

if TYPE_CHECKING:
    from hqlt_lab.experiment.cell import Cell
    from hqlt_lab.model.roofline import Roofline

SAYS = (
    "Upper bounds on tokens per second on one GPU, from FLOPs and bytes; a model too small to fill it stays far below. "
    "hours: of one GPU, for a whole cell, at least (the paper's took 2.5 times as many); memory: time in parts that "
    "wait for memory; most: the part that takes longest; all three on {}."
)


def roofline_of(cell: "Cell") -> "Roofline":
    """On rows as long as its longest; each of its devices has its share of the batch."""
    from hqlt_lab.experiment.composition import on_meta
    from hqlt_lab.model.roofline import roofline
    from hqlt_lab.registry import build

    task, devices = build("task", cell.task), cell.trainer.devices * cell.trainer.nodes
    rows = cell.train.batch_size / devices
    return roofline(on_meta(cell, task.vocabulary), task.tokens_in("train"), rows, cell.train.accumulate)


def by_arm(arms: Mapping[str, tuple["Roofline", int]]) -> Table:
    """A line per arm, from its bound and the tokens of a cell; what limits it is told of the newest chip."""
    from hqlt_lab.model.roofline import CHIPS

    names = (*(chip.name for chip in CHIPS), "hours", "memory", "most")
    made = Table(Column("arm", overflow="fold"), *(Column(name, justify="right") for name in names))
    made.box, made.pad_edge = None, False
    for arm, (bound, tokens) in arms.items():
        speeds = (in_numbers(bound.tokens_per_second(chip)) for chip in CHIPS)
        hours = tokens / bound.tokens_per_second(CHIPS[-1]) / 3600
        part, share = bound.slowest(CHIPS[-1])
        made.add_row(arm, *speeds, f"{hours:.3g}", f"{bound.memory_share(CHIPS[-1]):.0%}", f"{part} {share:.0%}")
    return made


def sentence() -> str:
    from hqlt_lab.model.roofline import CHIPS

    return SAYS.format(CHIPS[-1].name)


def numbers(bound: "Roofline") -> dict[str, dict[str, Any]]:
    """The same for programs, with the seconds of each part."""
    from hqlt_lab.model.roofline import CHIPS

    return {
        chip.name: {
            "most_tokens_per_second": bound.tokens_per_second(chip),
            "memory_share": bound.memory_share(chip),
            "seconds_per_token": {demand.part: demand.seconds(chip) for demand in bound.demands},
        }
        for chip in CHIPS
    }
