"""Every cell in a tidy table, for questions that the report does not ask."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hqlt_lab.experiment.change import short, spelled_value
from hqlt_lab.study.record import Record

if TYPE_CHECKING:
    from pandas import DataFrame

BEFORE = ("key", "arm", "seed")
SIZES = ("parameters", "state_bytes", "flops_per_token")
AFTER = ("counts", "state", "attempts", "step", "seconds", "tokens_per_second", *SIZES, "repeatable")
LAST = ("why", "folder", "run")


def frame(records: Sequence[Record]) -> "DataFrame":
    """One line per cell; crossed levels, tuned values and metrics each have a column."""
    from pandas import DataFrame

    names = axis_names(records)
    metrics = dict.fromkeys(metric for record in records for metric in record.metrics)
    columns = [*BEFORE, *names.values(), *AFTER, *metrics, *LAST]
    return DataFrame([line_of(record, names) for record in records], columns=columns)


def axis_names(records: Sequence[Record]) -> dict[str, str]:
    """Path -> column: the last word where it is free, else the whole path."""
    paths = dict.fromkeys(path for record in records for path in [*record.levels, *record.point])
    taken = {*BEFORE, *AFTER, *LAST}
    return {path: path if short(path, paths) in taken else short(path, paths) for path in paths}


def line_of(record: Record, names: dict[str, str]) -> dict[str, Any]:
    told = {word: getattr(record, word) for word in (*BEFORE, *AFTER, *LAST)} | {"folder": str(record.folder)}
    axes = {names[path]: plain(value) for path, value in {**record.levels, **record.point}.items()}
    return told | axes | dict(record.metrics)


def plain(value: Any) -> Any:
    """Numbers stay numbers; a part is its name and options, and nothing is the word null, which can be grouped by."""
    return value if isinstance(value, int | float | str) else spelled_value(value)
