"""The description of a study and its cells for MLflow, besides the content of their folders, as plain values.

Metrics, outcome and log are not repeated here; `mlflow_writer` reads them from the folder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hqlt_lab.experiment.apply_overrides import format_change, format_value, short_path
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.expand_cells import iter_points
from hqlt_lab.experiment.load_experiment import Experiment
from hqlt_lab.rundir.cell_state import CellState


@dataclass(frozen=True, kw_only=True)
class StudyInfo:
    """A study, as it is described in MLflow."""

    name: str
    question: str
    folder: Path
    axes: Sequence[str] = ()  # short names of the crossed and tuned settings
    select: str = ""
    report: Sequence[str] = ()
    direction: str = "maximize"
    layers: int = 0  # of the deepest arm
    config: str = ""  # text of the experiment file
    provenance: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CellInfo:
    """A cell, as it is described in MLflow."""

    key: str
    title: str
    folder: Path
    arm: str
    seed: int
    state: CellState
    axes: Mapping[str, str] = field(default_factory=dict)  # short name -> formatted value
    task: Mapping[str, Any] = field(default_factory=dict)  # its name and options
    why: str = ""  # the failure, or why it ended early
    code: Mapping[str, str] = field(default_factory=dict)  # provenance.cell_code_hashes


def build_study_info(experiment: Experiment, folder: Path, config: str, provenance: Mapping[str, Any]) -> StudyInfo:
    """Return the description of a study whose cells are in this folder."""
    first_point = next(iter_points(experiment.tune))
    paths = {path: None for arm in experiment.arms for path in arm.levels} | dict.fromkeys(experiment.tune)
    return StudyInfo(
        name=experiment.name,
        question=experiment.question,
        folder=folder,
        axes=[short_path(path, paths) for path in paths],
        select=experiment.measure.select,
        report=list(experiment.measure.report),
        direction=experiment.measure.metric_direction((*experiment.measure.report, experiment.measure.select)[0]),
        layers=max(experiment.make_cell(arm, first_point, 0).model["layers"] for arm in experiment.arms),
        config=config,
        provenance=provenance,
    )


def build_cell_info(
    key: str,
    cell: Cell,
    folder: Path,
    state: CellState,
    why: str = "",
    code: Mapping[str, str] | None = None,
) -> CellInfo:
    """Return the description of a cell in this state."""
    return CellInfo(
        key=key,
        title=cell_title(cell),
        folder=folder,
        arm=cell.arm,
        seed=cell.seed,
        state=state,
        axes={short_path(path, cell.axes): format_value(value) for path, value in cell.axes.items()},
        task=cell.task,
        why=why,
        code=code or {},
    )


def cell_title(cell: Cell) -> str:
    """Return a title such as "synchronous, mixer=sum, lr=0.001, seed=0": arm, crossed levels, tuned values, seed."""
    tuned_paths = [path for path in cell.axes if path not in cell.arm.levels]
    tuned = [format_change(path, cell.axes[path], cell.axes) for path in tuned_paths]
    return ", ".join([*([cell.arm] if cell.arm else []), *tuned, f"seed={cell.seed}"])
