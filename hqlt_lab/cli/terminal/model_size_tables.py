"""Model sizes and rooflines, as tables for people and as dictionaries for --json.

A roofline is the upper bound on the training speed of a cell on known GPUs.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Column, Table

from hqlt_lab.formatting import format_bytes, format_count

if TYPE_CHECKING:
    from hqlt_lab.experiment.cell import Cell
    from hqlt_lab.model.analysis.component_sizes import ComponentSize, ModelSizes
    from hqlt_lab.model.analysis.roofline import Roofline


SIZE_COLUMNS = ("parameters", "state", "train", "decode")
SIZES_NOTE = (
    "state: bytes per sequence after {} tokens; train, decode: FLOPs per token at that length, counting matrix "
    "multiplications only."
)


def sizes_by_arm(arms: Mapping[str, "ModelSizes"]) -> Table:
    """Return a table with one row per arm."""
    return build_size_table("arm", [(arm, sizes.total, sizes.length) for arm, sizes in arms.items()])


def sizes_by_component(arm: str, sizes: "ModelSizes") -> Table:
    """Return a table with one row per component of an arm's model, and the total."""
    return build_size_table(arm, [(size.component, size, sizes.length) for size in (*sizes.components, sizes.total)])


def build_size_table(heading: str, rows: Iterable[tuple[str, "ComponentSize", int]]) -> Table:
    table = Table(Column(escape(heading), overflow="fold"), *(Column(name, justify="right") for name in SIZE_COLUMNS))
    table.box, table.pad_edge = None, False
    for title, size, length in rows:
        table.add_row(escape(title), *format_size(size, length))
    return table


def format_size(size: "ComponentSize", length: int) -> tuple[str, str, str, str]:
    """Return parameters, state, and FLOPs per token in training and decoding; "-" for zero."""
    training, decoding = (format_count(number) if number else "-" for number in (size.training / length, size.decoding))
    parameters = f"{size.parameters:,}" if size.parameters else "-"  # not rounded, as papers report exact numbers
    return parameters, format_bytes(size.state) if size.state else "-", training, decoding


def sizes_as_dict(sizes: "ModelSizes") -> dict[str, Any]:
    """Return the sizes of a model and of its components for --json."""
    components = {size.component: size_as_dict(size, sizes.length) for size in sizes.components}
    return {"length": sizes.length, **size_as_dict(sizes.total, sizes.length), "components": components}


def size_as_dict(size: "ComponentSize", length: int) -> dict[str, float]:
    return {
        "parameters": size.parameters,
        "state_bytes": size.state,
        "training_flops_per_token": size.training / length,
        "decoding_flops_per_token": size.decoding,
    }


ROOFLINE_NOTE = (
    "Upper bounds on tokens per second on one GPU, computed from FLOPs and bytes; small models are much slower than "
    "the bound. The other columns are for {}. hours: minimum GPU hours per cell (the paper's runs took 2.5 times the "
    "bound); memory: share of time in memory-bound components; most: the slowest component."
)


def cell_roofline(cell: "Cell") -> "Roofline":
    """Compute the roofline of a cell for its longest rows and the batch share of one device."""
    from hqlt_lab.experiment.validate.arm_checks import build_meta_model
    from hqlt_lab.model.analysis.roofline import roofline
    from hqlt_lab.registry import build

    task, devices = build("task", cell.task), cell.trainer.devices * cell.trainer.nodes
    rows = cell.train.batch_size / devices
    return roofline(build_meta_model(cell, task.vocabulary), task.sequence_length("train"), rows, cell.train.accumulate)


def roofline_table(arms: Mapping[str, tuple["Roofline", int]]) -> Table:
    """Return a table with one row per arm, from its roofline and the number of tokens of a cell.

    The last three columns are for the newest GPU.
    """
    from hqlt_lab.model.analysis.roofline import CHIPS

    columns = (*(chip.name for chip in CHIPS), "hours", "memory", "most")
    table = Table(Column("arm", overflow="fold"), *(Column(name, justify="right") for name in columns))
    table.box, table.pad_edge = None, False
    for arm, (bound, tokens) in arms.items():
        speeds = (format_count(bound.tokens_per_second(chip)) for chip in CHIPS)
        hours = tokens / bound.tokens_per_second(CHIPS[-1]) / 3600
        component, share = bound.slowest_component(CHIPS[-1])
        table.add_row(
            arm, *speeds, f"{hours:.3g}", f"{bound.memory_bound_fraction(CHIPS[-1]):.0%}", f"{component} {share:.0%}"
        )
    return table


def roofline_note() -> str:
    from hqlt_lab.model.analysis.roofline import CHIPS

    return ROOFLINE_NOTE.format(CHIPS[-1].name)


def roofline_as_dict(bound: "Roofline") -> dict[str, dict[str, Any]]:
    """Return the roofline by GPU for --json, with the seconds per token of each component."""
    from hqlt_lab.model.analysis.roofline import CHIPS

    return {
        chip.name: {
            "most_tokens_per_second": bound.tokens_per_second(chip),
            "memory_bound_fraction": bound.memory_bound_fraction(chip),
            "seconds_per_token": {cost.component: cost.compute_seconds(chip) for cost in bound.costs},
        }
        for chip in CHIPS
    }
