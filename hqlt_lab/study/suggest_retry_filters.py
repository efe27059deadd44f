"""Filters for `--only` that select exactly the cells that failed or diverged, to retrain them with `--again`.

    arms a and b, seeds 0 to 3; b failed with seed 0                arm=b,seed=0
    b failed with seed 0, c with seed 1                             arm=b,seed=0   and   arm=c,seed=1

All cells of a study are needed to find out whether a filter is exact.
"""

from collections.abc import Sequence
from typing import Any

from hqlt_lab.experiment.apply_overrides import short_path
from hqlt_lab.experiment.cell_filters import cell_labels, format_filters, matches_filters, parse_filters
from hqlt_lab.rundir.cell_state import UNSUCCESSFUL_STATES
from hqlt_lab.study.ledger.cell_record import CellRecord

Labels = dict[str, str]


def list_retry_filters(records: Sequence[CellRecord]) -> list[str]:
    """Return filters that together select exactly the cells that failed or diverged. "" selects all cells.

    `records` are all cells of the study. One filter is returned if it is exact, else one per arm and axis values.
    Cells that no filter can select exactly are left out.
    """
    labels = [short_labels(record) for record in records if record.state != "superseded"]
    states = [record.state for record in records if record.state != "superseded"]
    unsuccessful = [cell for cell, state in zip(labels, states, strict=True) if state in UNSUCCESSFUL_STATES]
    if not unsuccessful:
        return []
    other_cells = [cell for cell, state in zip(labels, states, strict=True) if state not in UNSUCCESSFUL_STATES]
    combined = format_filter(unsuccessful, labels)
    if is_exact(combined, unsuccessful, other_cells):
        return [combined]
    groups: dict[tuple[Any, ...], list[Labels]] = {}
    for cell in unsuccessful:
        groups.setdefault(tuple(item for item in cell.items() if item[0] != "seed"), []).append(cell)
    filters = [(format_filter(group, labels), group) for group in groups.values()]
    return [cell_filter for cell_filter, group in filters if is_exact(cell_filter, group, other_cells)]


def short_labels(record: CellRecord) -> Labels:
    """Return arm, seed and axis values of a cell by their short paths."""
    axes = {**record.levels, **record.point}
    labels = cell_labels(record.arm.name, record.seed, axes)
    return {name: labels[name] for name in ("arm", *(short_path(path, axes) for path in axes), "seed")}


def format_filter(selected: Sequence[Labels], cells: Sequence[Labels]) -> str:
    """Return a filter with the labels of the selected cells, without labels whose values are those of all cells."""
    conditions = []
    for label in selected[0]:
        values = dict.fromkeys(cell[label] for cell in selected if label in cell)
        if any(cell.get(label) not in values for cell in cells):
            conditions.append(format_filters(label, values))
    return ",".join(conditions)


def is_exact(cell_filter: str, selected: Sequence[Labels], other_cells: Sequence[Labels]) -> bool:
    """Return whether a filter selects all of the selected cells and none of the others."""
    if not cell_filter:
        return not other_cells
    conditions = parse_filters([cell_filter])
    return all(matches_filters(cell, conditions) for cell in selected) and not any(
        matches_filters(cell, conditions) for cell in other_cells
    )
