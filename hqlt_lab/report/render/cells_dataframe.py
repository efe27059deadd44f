"""All cells as a tidy pandas DataFrame, for analyses beyond the report."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hqlt_lab.experiment.apply_overrides import format_value, short_path
from hqlt_lab.study.ledger.cell_record import CellRecord

if TYPE_CHECKING:
    from pandas import DataFrame

KEY_COLUMNS = ("key", "arm", "seed")
SIZE_COLUMNS = ("parameters", "state_bytes", "flops_per_token")
STATE_COLUMNS = (
    "is_reported",
    "state",
    "attempts",
    "step",
    "seconds",
    "tokens_per_second",
    *SIZE_COLUMNS,
    "repeatable",
)
TRAILING_COLUMNS = ("why", "folder", "run")


def build_frame(records: Sequence[CellRecord]) -> "DataFrame":
    """Build a frame with one line per cell, and a column for each crossed path, tuned path and metric."""
    from pandas import DataFrame

    column_by_path = axis_columns(records)
    metrics = dict.fromkeys(metric for record in records for metric in record.metrics)
    columns = [*KEY_COLUMNS, *column_by_path.values(), *STATE_COLUMNS, *metrics, *TRAILING_COLUMNS]
    return DataFrame([frame_row(record, column_by_path) for record in records], columns=columns)


def axis_columns(records: Sequence[CellRecord]) -> dict[str, str]:
    """Return the column name of each path: its short name, or the full path if that name is taken."""
    paths = dict.fromkeys(path for record in records for path in [*record.levels, *record.point])
    fixed_columns = {*KEY_COLUMNS, *STATE_COLUMNS, *TRAILING_COLUMNS}
    return {path: path if short_path(path, paths) in fixed_columns else short_path(path, paths) for path in paths}


def frame_row(record: CellRecord, column_by_path: dict[str, str]) -> dict[str, Any]:
    values = {name: getattr(record, name) for name in (*KEY_COLUMNS, *STATE_COLUMNS, *TRAILING_COLUMNS)}
    values |= {"folder": str(record.folder)}
    axes = {column_by_path[path]: plain_value(value) for path, value in {**record.levels, **record.point}.items()}
    return values | axes | dict(record.metrics)


def plain_value(value: Any) -> Any:
    """Return numbers and strings unchanged, others as text; None becomes "null", which pandas can group by."""
    return value if isinstance(value, int | float | str) else format_value(value)
