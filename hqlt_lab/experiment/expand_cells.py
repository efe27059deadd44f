"""Expand an experiment into cells: arms x tuned points x seeds, each with its key."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.cell_key import settings_for_key
from hqlt_lab.experiment.parse_axes import Range
from hqlt_lab.hashing import hash_json

if TYPE_CHECKING:
    from hqlt_lab.experiment.load_experiment import Experiment


class PlannedCell(NamedTuple):
    """A cell to train, and its key."""

    key: str
    cell: Cell


def expand_plan(experiment: "Experiment") -> list[PlannedCell]:
    """Return all cells that are known in advance: those of the grid.

    A searched range adds cells during the study. If seeds are added until all comparisons are decided, these are the
    cells before the first look; with `tune`, those that select the tuned values.
    """
    seeds: Sequence[int] = experiment.seeds
    if experiment.looks:
        seeds = experiment.tune_seeds if experiment.tune else experiment.seeds[: experiment.looks[0]]
    return [
        planned
        for arm in experiment.arms
        for point in iter_grid_points(experiment.tune)
        for planned in expand_seeds(experiment.make_cell(arm, point, 0), seeds)
    ]


def expand_seeds(cell: Cell, seeds: Sequence[int]) -> list[PlannedCell]:
    """Return the cell with each of these seeds. All other settings are the same, so they are stripped only once."""
    settings = settings_for_key(cell)
    return [PlannedCell(hash_json({**settings, "seed": seed}), replace(cell, seed=seed)) for seed in seeds]


def iter_points(tune: Mapping[str, list[Any] | Range]) -> Iterator[dict[str, Any]]:
    """Yield every tuned point. A searched range contributes its two ends."""
    values = [[axis.low, axis.high] if isinstance(axis, Range) else axis for axis in tune.values()]
    return (dict(zip(tune, choice, strict=True)) for choice in product(*values))


def iter_grid_points(tune: Mapping[str, list[Any] | Range]) -> Iterator[dict[str, Any]]:
    """Yield every point of the tuned grid, without searched ranges."""
    return iter_points({path: axis for path, axis in tune.items() if not isinstance(axis, Range)})
