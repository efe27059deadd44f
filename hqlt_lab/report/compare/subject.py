"""What can be compared: a trained cell, and a study."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.experiment import Experiment
from hqlt_lab.experiment.plan import points
from hqlt_lab.report.rows import Row, rows_of
from hqlt_lab.study.past import Past, cell_in, experiment_of
from hqlt_lab.study.record import Record
from hqlt_lab.study.sources import noted
from hqlt_lab.train.claim import flat
from hqlt_lab.train.outcome import Outcome, read_outcome

Settings = Mapping[str, Any]  # dotted path -> value
Versions = Mapping[str, Sequence[str]]  # a source -> the hashes of it that made results


@dataclass(frozen=True, kw_only=True)
class Trained:
    """One cell, from its folder."""

    name: str  # as it was asked for
    settings: Settings
    outcome: Outcome | None  # None: it has not ended
    versions: Versions = field(default_factory=dict)
    changed: Sequence[str] = ()  # sources that are others today
    commits: Sequence[str] = ()

    @property
    def title(self) -> str:
        """delta, lr=0.001, seed 0"""
        arm, axes = self.settings.get("arm", ""), self.settings.get("axes", "")
        return f"{', '.join(filter(None, [arm, axes]))}, seed {self.settings['seed']}".removeprefix(", ")


@dataclass(frozen=True, kw_only=True)
class Study:
    """An experiment and its cells as they stand."""

    name: str
    experiment: Experiment
    records: Sequence[Record]
    arms: Mapping[str, Settings]  # by title, the baseline first; without what is tuned
    commits: Sequence[str] = ()

    @cached_property
    def rows(self) -> dict[str, Row]:
        return {row.title: row for row in rows_of(self.experiment, self.records) if not row.quoted}

    @property
    def versions(self) -> Versions:
        """Of all finished cells."""
        found: dict[str, dict[str, None]] = {}
        for record in self.records:
            for name, source in record.code.items() if record.state == "done" else ():
                found.setdefault(name, {})[source] = None
        return {name: list(sources) for name, sources in found.items()}

    @property
    def changed(self) -> list[str]:
        return list(dict.fromkeys(name for record in self.records for name in record.changed))


def trained(name: str, folder: Path, today: Any, commits: Sequence[str]) -> Trained:
    """The cell of this folder; `today` tells the hashes of sources as they are now."""
    cell = cell_in(folder)
    code = noted(folder)
    now = today(code)
    axes = ", ".join(f"{path}={value}" for path, value in cell.pop("axes", {}).items())
    return Trained(
        name=name,
        settings=dict(flat(cell)) | ({"axes": axes} if axes else {}),
        outcome=read_outcome(folder),
        versions={source: [version] for source, version in code.items()},
        changed=[source for source, version in code.items() if now.get(source, version) != version],
        commits=commits,
    )


def study_of_file(name: str, experiment: Experiment, records: Sequence[Record], commits: Sequence[str]) -> Study:
    """What a file asks, and what is known of it."""
    first = next(points(experiment.tune))
    cells = {arm.title: experiment.cell(arm, first, 0) for arm in experiment.arms}
    arms = {title: without(settings_of(cell), experiment.tune) for title, cell in cells.items()}
    return Study(name=name, experiment=experiment, records=records, arms=arms, commits=commits)


def study_of_folder(name: str, past: Past, commits: Sequence[str]) -> Study:
    """What was trained under this name, whatever its file says today."""
    experiment = experiment_of(past)
    arms = {title: without(dict(flat(told)), experiment.tune) for title, told in past.settings.items()}
    return Study(name=name, experiment=experiment, records=past.records, arms=arms, commits=commits)


def settings_of(cell: Cell) -> Settings:
    return dict(flat(cell.as_dict()))


def without(settings: Settings, tuned: Mapping[str, Any]) -> Settings:
    """What an arm is told: not its name, nor what differs from cell to cell."""
    left = {path: value for path, value in settings.items() if path.split(".")[0] not in ("arm", "seed", "axes")}
    inside = tuple(f"{path}." for path in tuned)
    return {path: value for path, value in left.items() if path not in tuned and not path.startswith(inside)}
