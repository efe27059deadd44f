"""Save a report to files, with the commands that reproduce it."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.api.tracking import DEFAULT_RUNS
from hqlt_lab.files import read_json
from hqlt_lab.registry import list_loaded_files
from hqlt_lab.study.experiment_file_record import open_study
from hqlt_lab.study.ledger.study_store import StudyStore

if TYPE_CHECKING:
    from hqlt_lab.report.render.reproduction import Reproduction
    from hqlt_lab.report.render.write_report import SavedReport
    from hqlt_lab.report.study_report import Report


def save_report(
    report: "Report",
    file: str | Path,
    folder: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    runs: str | Path = DEFAULT_RUNS,
) -> "SavedReport":
    """Write a report with all its files and the commands that reproduce it to `folder` or the study's folder."""
    reproduction = find_reproduction(file, overrides=overrides, runs=runs)
    return report.save(Path(folder or open_study(runs, Path(file)).folder), reproduction)


def find_reproduction(
    file: str | Path, *, overrides: Sequence[str] = (), runs: str | Path = DEFAULT_RUNS
) -> "Reproduction":
    """Return the commands that reproduce the study of an experiment file, and the provenance of its results."""
    return make_reproduction(Path(file), overrides, runs, open_study(runs, Path(file)))


def make_reproduction(file: Path, overrides: Sequence[str], runs: str | Path, store: StudyStore) -> "Reproduction":
    """Return the commands that reproduce the study, and the provenance of its results."""
    from hqlt_lab.report.render.reproduction import Reproduction
    from hqlt_lab.track.provenance import collect_provenance

    component_options = [argument for path in list_loaded_files() for argument in ("--with", os.path.relpath(path))]
    options = [argument for override in overrides for argument in ("--set", override)]
    options += ["--runs", str(runs)] if Path(runs) != DEFAULT_RUNS else []
    commands = [shlex.join(["hqlt", *component_options, command, str(file), *options]) for command in ("run", "report")]
    stored = store.folder / "provenance.json"
    return Reproduction(
        commands, read_json(stored, dict) if stored.exists() else collect_provenance(file.resolve().parent)
    )
