"""What is to be mirrored, in plain values: a study and its cells, as the coordinator knows them.

Whatever a folder holds (curves, outcome, log) is not repeated here; the mirror reads it there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.change import short, spelled_value
from hqlt_lab.experiment.experiment import Experiment
from hqlt_lab.experiment.plan import points

State = Literal["waiting", "running", "done", "failed", "diverged", "pruned", "superseded"]
ENDED = ("done", "failed", "diverged", "pruned", "superseded")  # nothing more is written into such a folder


@dataclass(frozen=True, kw_only=True)
class StudyCard:
    """An experiment file, as MLflow shall know it."""

    name: str
    question: str
    folder: Path
    arms: Sequence[str] = ()  # titles, the baseline first
    axes: Sequence[str] = ()  # short names of what is crossed and tuned
    select: str = ""
    report: Sequence[str] = ()
    direction: str = "maximize"
    layers: int = 0  # of the deepest arm
    config: str = ""  # the YAML as it was read
    provenance: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CellCard:
    """One cell, as MLflow shall know it."""

    key: str
    title: str
    folder: Path
    arm: str
    seed: int
    state: State
    axes: Mapping[str, str] = field(default_factory=dict)  # short name -> value, spelled
    task: Mapping[str, Any] = field(default_factory=dict)  # its name and options
    why: str = ""  # what went wrong, or why it ended early
    code: Mapping[str, str] = field(default_factory=dict)  # provenance.code_of
    tags: Mapping[str, str] = field(default_factory=dict)  # anything else: name -> value


def study_card(experiment: Experiment, folder: Path, config: str, provenance: Mapping[str, Any]) -> StudyCard:
    """The card of an experiment whose cells live in this folder."""
    first = next(points(experiment.tune))
    paths = {path: None for arm in experiment.arms for path in arm.levels} | dict.fromkeys(experiment.tune)
    return StudyCard(
        name=experiment.name,
        question=experiment.question,
        folder=folder,
        arms=[arm.title for arm in experiment.arms],
        axes=[short(path, paths) for path in paths],
        select=experiment.measure.select,
        report=list(experiment.measure.report),
        direction=experiment.measure.way((*experiment.measure.report, experiment.measure.select)[0]),
        layers=max(experiment.cell(arm, first, 0).model["layers"] for arm in experiment.arms),
        config=config,
        provenance=provenance,
    )


def cell_card(
    key: str,
    cell: Cell,
    folder: Path,
    state: State,
    why: str = "",
    code: Mapping[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
) -> CellCard:
    """The card of a cell that stands like this."""
    axes = {short(path, cell.axes): spelled_value(value) for path, value in cell.axes.items()}
    return CellCard(
        key=key,
        title=title_of(cell, axes),
        folder=folder,
        arm=cell.arm,
        seed=cell.seed,
        state=state,
        axes=axes,
        task=cell.task,
        why=why,
        code=code or {},
        tags=tags or {},
    )


def title_of(cell: Cell, axes: Mapping[str, str]) -> str:
    """synchronous, mixer=sum, lr=0.001, seed=0: the arm's title has its crossed levels, the tuned ones follow."""
    told = cell.arm.split(", ")
    tuned = [word for word in (f"{name}={value}" for name, value in axes.items()) if word not in told]
    return ", ".join([*([cell.arm] if cell.arm else []), *tuned, f"seed={cell.seed}"])
