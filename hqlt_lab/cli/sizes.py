"""The sizes of a model as people and as programs read them: a table, a mapping."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Column, Table

from hqlt_lab.words import in_bytes, in_numbers

if TYPE_CHECKING:
    from hqlt_lab.model.sizes import Size, Sizes

COLUMNS = ("parameters", "state", "train", "decode")
SAYS = "state: bytes of one row after {} tokens; train, decode: FLOPs per token, products only, at that length."


def by_arm(arms: Mapping[str, "Sizes"]) -> Table:
    """A line per arm."""
    return table("arm", [(arm, sizes.total, sizes.length) for arm, sizes in arms.items()])


def by_part(arm: str, sizes: "Sizes") -> Table:
    """A line per part of one arm."""
    return table(arm, [(size.part, size, sizes.length) for size in (*sizes.parts, sizes.total)])


def table(name: str, lines: Iterable[tuple[str, "Size", int]]) -> Table:
    made = Table(Column(escape(name), overflow="fold"), *(Column(one, justify="right") for one in COLUMNS))
    made.box, made.pad_edge = None, False
    for title, size, length in lines:
        made.add_row(escape(title), *words(size, length))
    return made


def words(size: "Size", length: int) -> tuple[str, str, str, str]:
    """Parameters, state, FLOPs of a training token and of a decoded one; nothing where there is none."""
    training, decoding = (in_numbers(number) if number else "-" for number in (size.training / length, size.decoding))
    parameters = f"{size.parameters:,}" if size.parameters else "-"  # to the last one: papers tell them
    return parameters, in_bytes(size.state) if size.state else "-", training, decoding


def numbers(sizes: "Sizes") -> dict[str, Any]:
    """The same for programs."""
    parts = {size.part: numbers_of(size, sizes.length) for size in sizes.parts}
    return {"length": sizes.length, **numbers_of(sizes.total, sizes.length), "parts": parts}


def numbers_of(size: "Size", length: int) -> dict[str, float]:
    return {
        "parameters": size.parameters,
        "state_bytes": size.state,
        "training_flops_per_token": size.training / length,
        "decoding_flops_per_token": size.decoding,
    }
