"""Load the targets of a comparison: trained cells or studies."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hqlt_lab.experiment.arm_title import ArmTitle
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.expand_cells import iter_points
from hqlt_lab.experiment.load_experiment import Experiment
from hqlt_lab.report.arm_rows import Row, build_rows
from hqlt_lab.rundir.cell_file import flatten_paths
from hqlt_lab.rundir.code_hashes import read_code_hashes
from hqlt_lab.rundir.outcome import Outcome, read_outcome
from hqlt_lab.study.ledger.cell_record import CellRecord
from hqlt_lab.study.study_snapshot import StudySnapshot, experiment_from_snapshot, read_cell_settings

SettingValues = Mapping[str, Any]  # dotted path -> value
HashesBySource = Mapping[str, Sequence[str]]  # source -> hashes that results were trained with


@dataclass(frozen=True, kw_only=True)
class ComparedCell:
    """One cell, loaded from its folder."""

    name: str  # as given by the user
    settings: SettingValues
    outcome: Outcome | None  # None: the cell has not ended
    hashes_by_source: HashesBySource = field(default_factory=dict)
    changed_sources: Sequence[str] = ()  # sources that have changed since
    commits: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class ComparedStudy:
    """An experiment and the current records of its cells."""

    name: str
    experiment: Experiment
    records: Sequence[CellRecord]
    arm_settings: Mapping[str, SettingValues]  # by title, the baseline first; without tuned settings
    commits: Sequence[str] = ()

    @cached_property
    def rows_by_arm(self) -> dict[str, Row]:
        return {row.title: row for row in build_rows(self.experiment, self.records) if not row.is_quoted}

    @property
    def hashes_by_source(self) -> HashesBySource:
        """Hashes of each source over all finished cells."""
        hashes: dict[str, dict[str, None]] = {}
        for record in self.records:
            for source, version in record.code.items() if record.state == "done" else ():
                hashes.setdefault(source, {})[version] = None
        return {source: list(versions) for source, versions in hashes.items()}

    @property
    def changed_sources(self) -> list[str]:
        return list(dict.fromkeys(name for record in self.records for name in record.changed))


def load_compared_cell(
    name: str, folder: Path, current_hashes: Callable[[Iterable[str]], Mapping[str, str]], commits: Sequence[str]
) -> ComparedCell:
    """Load the cell of a folder; `current_hashes` returns the current hashes of the given sources."""
    cell = read_cell_settings(folder)
    cell["arm"] = str(ArmTitle.from_dict(cell["arm"]))
    code = read_code_hashes(folder)
    current = current_hashes(code)
    axes = ", ".join(f"{path}={value}" for path, value in cell.pop("axes", {}).items())
    return ComparedCell(
        name=name,
        settings=dict(flatten_paths(cell)) | ({"axes": axes} if axes else {}),
        outcome=read_outcome(folder),
        hashes_by_source={source: [code_hash] for source, code_hash in code.items()},
        changed_sources=[source for source, version in code.items() if current.get(source, version) != version],
        commits=commits,
    )


def study_from_file(
    name: str, experiment: Experiment, records: Sequence[CellRecord], commits: Sequence[str]
) -> ComparedStudy:
    """Build a study from its experiment file and the records of its cells."""
    first_point = next(iter_points(experiment.tune))
    cells = {arm.title: experiment.make_cell(arm, first_point, 0) for arm in experiment.arms}
    arms = {str(title): drop_cell_settings(flatten_settings(cell), experiment.tune) for title, cell in cells.items()}
    return ComparedStudy(name=name, experiment=experiment, records=records, arm_settings=arms, commits=commits)


def study_from_folder(name: str, snapshot: StudySnapshot, commits: Sequence[str]) -> ComparedStudy:
    """Build a study from its folder: what was trained, independent of the current experiment file."""
    experiment = experiment_from_snapshot(snapshot)
    arms = {
        str(title): drop_cell_settings(dict(flatten_paths(settings)), experiment.tune)
        for title, settings in snapshot.settings_by_arm.items()
    }
    return ComparedStudy(name=name, experiment=experiment, records=snapshot.records, arm_settings=arms, commits=commits)


def flatten_settings(cell: Cell) -> SettingValues:
    return dict(flatten_paths(cell.to_dict()))


def drop_cell_settings(settings: SettingValues, tuned_paths: Mapping[str, Any]) -> SettingValues:
    """Return the settings of an arm without its name and without those that differ between its cells."""
    arm_settings = {
        path: value for path, value in settings.items() if path.split(".")[0] not in ("arm", "seed", "axes")
    }
    tuned_prefixes = tuple(f"{path}." for path in tuned_paths)
    return {
        path: value
        for path, value in arm_settings.items()
        if path not in tuned_paths and not path.startswith(tuned_prefixes)
    }
