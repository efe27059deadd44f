"""Snapshot of a study read from its folder alone: what was trained, with which settings and which code.

The experiment file may have changed since, or be missing.  The ledger has every attempt, and each cell's folder has its
settings.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hqlt_lab.errors import StoreError
from hqlt_lab.experiment.arm_title import ArmTitle
from hqlt_lab.experiment.load_experiment import Arm, Experiment
from hqlt_lab.experiment.run_settings import MeasureConfig
from hqlt_lab.files import read_json
from hqlt_lab.registry import parse_settings
from hqlt_lab.rundir.cell_file import CELL_FILE
from hqlt_lab.rundir.cell_state import SETTLED_STATES
from hqlt_lab.study.ledger.attempt_history import Attempt, AttemptHistory
from hqlt_lab.study.ledger.cell_record import (
    OUTCOME_FIELDS,
    CellRecord,
    add_lm_eval_results,
    find_changed_sources,
    group_by_point,
)
from hqlt_lab.study.ledger.study_store import StudyStore
from hqlt_lab.track.provenance import current_code_hashes


@dataclass(frozen=True, kw_only=True)
class StudySnapshot:
    """The cells of a study that were begun."""

    name: str
    records: Sequence[CellRecord]
    # settings of one cell per arm, in the order of first attempts
    settings_by_arm: Mapping[ArmTitle, Mapping[str, Any]]


def load_snapshot(store: StudyStore) -> StudySnapshot:
    """Read a study from its folder."""
    history = AttemptHistory(store)
    records = [
        record_from_attempts(attempts, store)
        for key in history.attempts_by_key
        if (attempts := history.get_attempts(key))
    ]
    if not records:
        raise StoreError(f"{store.folder}: no cell has been trained here. `hqlt run FILE` trains a study.")
    settings: dict[ArmTitle, Mapping[str, Any]] = {}
    for record in records:
        if record.arm not in settings and (record.folder / CELL_FILE).is_file():
            settings[record.arm] = read_cell_settings(record.folder)
    return StudySnapshot(name=store.name, records=records, settings_by_arm=settings)


def record_from_attempts(attempts: Sequence[Attempt], store: StudyStore) -> CellRecord:
    """Return the record of a cell from its attempts; a cell that is not settled counts as waiting."""
    last = attempts[-1]
    cell_attributes, result = last.cell_attributes, last.result
    folder = store.cell_folder(last.key, last.generation)
    arm = ArmTitle.from_dict(cell_attributes["arm"])
    return CellRecord(
        key=last.key,
        arm=arm,
        levels=arm.levels,
        seed=cell_attributes["seed"],
        point=cell_attributes["point"],
        is_reported=cell_attributes["is_reported"],
        state=last.status if last.status in SETTLED_STATES else "waiting",
        attempts=len(attempts),
        why=result.get("why", ""),
        code=last.code_hashes,
        changed=find_changed_sources(last.code_hashes),
        folder=folder,
        **add_lm_eval_results({name: result[name] for name in OUTCOME_FIELDS if name in result}, folder),
    )


def experiment_from_snapshot(snapshot: StudySnapshot) -> Experiment:
    """Rebuild as much of the experiment as the cells contain: arms, tuned values, seeds and the measure."""
    settings = next(iter(snapshot.settings_by_arm.values()), {})
    tuned_paths = dict.fromkeys(path for record in snapshot.records for path in record.point)
    points = [point for point, _ in group_by_point(snapshot.records)]
    reported_seeds = sorted({record.seed for record in snapshot.records if record.is_reported})
    search_seeds = sorted({record.seed for record in snapshot.records if not record.is_reported})
    return Experiment(
        name=snapshot.name,
        question="",
        base={section: settings[section] for section in ("task", "model", "train") if settings.get(section)},
        arms=tuple(
            arm_from_settings(title, snapshot.settings_by_arm.get(title))
            for title in dict.fromkeys(record.arm for record in snapshot.records)
        ),
        tune={path: unique_values([point[path] for point in points if path in point]) for path in tuned_paths},
        seeds=tuple(reported_seeds),
        tune_seeds=tuple(search_seeds),
        measure=parse_settings(MeasureConfig, settings.get("measure", {})),
        published={},
        quoted={},
    )


def arm_from_settings(title: ArmTitle, settings: Mapping[str, Any] | None) -> Arm:
    """Return an arm with this title, and with the settings of one of its cells as changes of the base.

    The settings contain the crossed levels. Without settings the levels are only shown, as part of the name: they may
    not fit the settings of another arm.
    """
    if settings is None:
        return Arm(name=title)
    sections = ("task", "model", "train", "agent")
    changes = {section: settings[section] for section in sections if settings.get(section)}
    return Arm(name=title.name, levels=title.levels, changes=changes)


def unique_values(values: Sequence[Any]) -> list[Any]:
    """Return the distinct values in order; they may be components, which are not hashable."""
    return [value for index, value in enumerate(values) if value not in values[:index]]


def read_cell_settings(folder: Path) -> dict[str, Any]:
    """Return the settings in a cell's folder, without parsing them."""
    return read_json(folder / CELL_FILE, dict, allow_nan=True)


def find_missing_sources(names: Iterable[str]) -> list[str]:
    """Return the sources that are not available here, such as components whose file was not loaded."""
    names = list(names)
    available = current_code_hashes(names)
    return [name for name in names if name not in available]
