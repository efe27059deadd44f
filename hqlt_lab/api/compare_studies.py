"""Compare cells, studies and published values."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.api.tracking import DEFAULT_RUNS
from hqlt_lab.api.trained_cells import find_cell_folder
from hqlt_lab.errors import StoreError, did_you_mean, format_names, join_sentences
from hqlt_lab.experiment.load_experiment import load_experiment
from hqlt_lab.study.experiment_file_record import open_study
from hqlt_lab.study.ledger.study_store import StudyStore, is_study_folder, list_studies
from hqlt_lab.study.run_study import open_plan

if TYPE_CHECKING:
    from hqlt_lab.report.compare.build_comparison import Comparison
    from hqlt_lab.report.compare.comparison_targets import ComparedCell, ComparedStudy


def compare(
    targets: Sequence[str | Path], *, overrides: Sequence[str] = (), runs: str | Path = DEFAULT_RUNS
) -> "Comparison":
    """Compare cells, or studies; a single experiment file is compared with its published values."""
    from hqlt_lab.report.compare.build_comparison import compare_targets

    return compare_targets([resolve_target(target, overrides, runs) for target in targets])


def resolve_target(target: str | Path, overrides: Sequence[str], runs: str | Path) -> "ComparedCell | ComparedStudy":
    """Load a study by its experiment file, name or folder, or a cell by its key, folder or MLflow run."""
    from hqlt_lab.report.compare.comparison_targets import load_compared_cell, study_from_file, study_from_folder
    from hqlt_lab.study.study_snapshot import load_snapshot
    from hqlt_lab.track.provenance import current_code_hashes, study_commits

    name, path, root = str(target), Path(target), Path(runs).resolve()
    if path.is_file() or path.suffix in (".yaml", ".yml"):
        experiment = load_experiment(path, overrides)
        store = open_study(root, experiment.file)
        plan = open_plan(experiment, store)
        return study_from_file(
            name, plan.experiment, plan.list_records(), study_commits(store.folder, root / "artifacts")
        )
    folder = path if is_study_folder(path) else root / "studies" / name
    if is_study_folder(folder):
        study_root = folder.resolve().parents[1]
        snapshot = load_snapshot(StudyStore(study_root, folder.name))
        return study_from_folder(name, snapshot, study_commits(folder, study_root / "artifacts"))
    cell_folder = find_target_folder(target, runs)
    return load_compared_cell(
        name, cell_folder, current_code_hashes, study_commits(cell_folder.parents[1], root / "artifacts")
    )


def find_target_folder(target: str | Path, runs: str | Path) -> Path:
    """Return the folder of a cell; the error also lists the studies."""
    try:
        return find_cell_folder(target, runs)
    except StoreError as error:
        studies = [folder.name for folder in list_studies(Path(runs))]
        raise StoreError(
            join_sentences(
                f"{error} Give the experiment file of a study, or one of these names: {format_names(studies)}.",
                did_you_mean(str(target), studies),
            )
        ) from error
