"""Cached plan, so that read-only commands such as `hqlt status` need not rebuild every model.

    runs/studies/NAME/plan.json     every cell of the grid, and the fingerprint of everything that the plan depends on

The fingerprint is a hash of the experiment, of the index of its data, and of all source files of the lab that planning
uses.  If it differs, the cached plan is ignored and rewritten.  Nothing is cached where the fingerprint could miss a
change: with components from outside the lab, which may import anything; with data that the experiment does not name as
`data`; and for a search or with looks, whose cells become known one after the other.
"""

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hqlt_lab.errors import StoreError
from hqlt_lab.experiment.cell_filters import cell_labels, select_items
from hqlt_lab.experiment.load_experiment import Arm
from hqlt_lab.experiment.yaml.read_experiment_files import ExperimentSource
from hqlt_lab.files import check_types, read_json, write_atomic
from hqlt_lab.hashing import SHA256_DIGITS, digest_bytes, hash_chunks
from hqlt_lab.registry import (
    find_external_components,
    find_factory,
    list_declared_files,
    list_entry_points,
    list_interactive_components,
    list_loaded_files,
)
from hqlt_lab.study.ledger.cell_record import CellRef
from hqlt_lab.study.plan.study_plan import StudyPlan
from hqlt_lab.track.provenance import package_dir

PLAN_FILE = "plan.json"
KEY_PATTERN = re.compile("[0-9a-f]{16}")
DATA_INDEX = "index.json"  # of prepared data, with their digest
CELL_TYPES = {"key": (str,), "arm": (int,), "point": (int,), "seed": (int,)}  # of an entry of "cells"
PROCESS_START = time.time()  # source files modified later may differ from the imported modules


@dataclass(frozen=True, kw_only=True)
class CachedPlan:
    """The part of a plan that is needed to show the state of a study."""

    report_metrics: list[str]  # metrics listed in `measure.report`
    warnings: list[str]  # of the validation of the experiment
    retries: int
    cells: list[CellRef]

    def select_cells(self, only: Sequence[str]) -> list[CellRef]:
        """Return the cells selected by filters such as `--only arm=synchronous,seed=1`."""
        if not only:
            return self.cells
        labels = [
            cell_labels(cell_ref.arm.name, cell_ref.seed, {**cell_ref.arm.levels, **(cell_ref.point or {})})
            for cell_ref in self.cells
        ]
        return select_items(self.cells, labels, only)


def make_cached_plan(plan: StudyPlan) -> CachedPlan:
    """Return the cacheable part of the plan of a grid."""
    report, retries = plan.experiment.measure.report, plan.cell_states.retries
    return CachedPlan(
        report_metrics=report, warnings=[*plan.experiment.warnings], retries=retries, cells=plan.grid_cells
    )


def save_plan(plan: StudyPlan, fingerprint: str | None) -> None:
    """Write a plan with the fingerprint computed before planning, unless it is not cacheable or has changed since."""
    experiment, folder = plan.experiment, plan.store.folder
    data_folders = None if experiment.source is None else list_data_folders(experiment.source.config)
    is_uncacheable = plan.adds_cells or any(
        find_factory("task", cell.task["name"]).has_data  # type: ignore[attr-defined]
        and cell.task.get("data") not in (data_folders or ())
        for cell in plan.first_cell_by_arm.values()
    )
    if (
        fingerprint is None
        or is_uncacheable
        or not folder.is_dir()  # a command that only reads creates no study
        or experiment.source is None
        or fingerprint != compute_fingerprint(experiment.source)
    ):
        return
    data = {"fingerprint": fingerprint, **plan_to_dict(make_cached_plan(plan))}
    with suppress(OSError):
        write_atomic(folder / PLAN_FILE, json.dumps(data, separators=(",", ":")) + "\n")


def load_plan(folder: Path, fingerprint: str | None) -> CachedPlan | None:
    """Return the cached plan, or None if there is none, its fingerprint differs, or it is damaged."""
    try:
        data = read_json(folder / PLAN_FILE, dict) if fingerprint else {}
        return plan_from_dict(data) if fingerprint and data["fingerprint"] == fingerprint else None
    # the folder may come from an untrusted source, so anything may be in the file
    except (OSError, StoreError, ValueError, TypeError, LookupError, AttributeError):
        return None


def compute_fingerprint(source: ExperimentSource) -> str | None:
    """Return a hash of the experiment, the index of its data and the source files that planning uses.

    None if there are components from outside the lab, the name of a data folder refers to another setting, or a source
    file was written after this process started.
    """
    if (
        list_entry_points()
        or list_interactive_components()
        or list_loaded_files()
        or list_declared_files()
        or find_external_components()
        or (data_folders := list_data_folders(source.config)) is None
    ):
        return None
    chunks = [repr(source.config).encode()]
    try:
        for folder in data_folders:
            index = Path(folder) / DATA_INDEX
            chunks.append(f"\n{folder}\n".encode() + (digest_bytes(index.read_bytes()) if index.is_file() else b""))
        for file in list_source_files():
            if file.stat().st_mtime > PROCESS_START:
                return None
            chunks.append(f"\n{file.name}\n".encode() + digest_bytes(file.read_bytes()))
    except OSError:
        return None
    return hash_chunks(chunks, SHA256_DIGITS)


def list_data_folders(config: Any) -> list[str] | None:
    """Return the folders of prepared data that an experiment names; None if a name refers to another setting."""
    folders: list[str] = []
    for key, value in iter_settings(config):
        if str(key).rpartition(".")[2] == "data":
            names = value if isinstance(value, list) else [value]
            folders += [name for name in names if isinstance(name, str)]
    return None if any("${" in folder for folder in folders) else sorted(set(folders))


def iter_settings(config: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every key with its value, at any depth of mappings and lists."""
    entries = config.items() if isinstance(config, dict) else ((None, value) for value in config)
    for key, value in entries:
        yield key, value
        if isinstance(value, dict | list):
            yield from iter_settings(value)


def list_source_files() -> Iterator[Path]:
    """Yield every source file of the lab that planning uses."""
    for name in ("registry", "ops", "components", "model", "tasks", "experiment", "study"):
        yield from sorted(package_dir(name).rglob("*.py"))


def plan_to_dict(plan: CachedPlan) -> dict[str, Any]:
    """Return the plan as JSON data: arms and points once, and each cell with their indices."""
    arms = {cell_ref.arm.title: cell_ref.arm for cell_ref in plan.cells}
    points = {json.dumps(cell_ref.point): cell_ref.point for cell_ref in plan.cells}
    arm_index, point_index = ({name: index for index, name in enumerate(table)} for table in (arms, points))
    return {
        "report": plan.report_metrics,
        "warnings": plan.warnings,
        "retries": plan.retries,
        "arms": [[arm.name, dict(arm.levels)] for arm in arms.values()],
        "points": list(points.values()),
        "cells": [
            [cell_ref.key, arm_index[cell_ref.arm.title], point_index[json.dumps(cell_ref.point)], cell_ref.seed]
            for cell_ref in plan.cells
        ],
    }


def plan_from_dict(data: dict[str, Any]) -> CachedPlan:
    """Rebuild a cached plan from JSON data.  Overrides of arms are not stored, so the rebuilt arms lack them."""
    check_types(data, {"report": (list,), "retries": (int,), "arms": (list,), "points": (list,), "cells": (list,)})
    for key, arm, point, seed in data["cells"]:
        check_types({"key": key, "arm": arm, "point": point, "seed": seed}, CELL_TYPES)
    for name, _ in data["arms"]:
        check_types({"arm": name}, {"arm": (str,)})
    arms = [Arm(name=name, levels=dict(levels)) for name, levels in data["arms"]]
    points, report = [dict(point) for point in data["points"]], [*map(str, data["report"])]
    warnings = [*map(str, data["warnings"])]
    keys_are_valid = all(KEY_PATTERN.fullmatch(key) for key, *_ in data["cells"])  # keys are used as folder names
    lines = [line for warning in warnings for line in warning.splitlines()]
    if not keys_are_valid or not all(text.isprintable() for text in (*(arm.title for arm in arms), *report, *lines)):
        raise ValueError("this file was not written by hqlt_lab")
    cells = [CellRef(key=key, arm=arms[arm], point=points[point], seed=seed) for key, arm, point, seed in data["cells"]]
    return CachedPlan(report_metrics=report, warnings=warnings, retries=data["retries"], cells=cells)
