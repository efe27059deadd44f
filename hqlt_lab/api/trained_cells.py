"""Find, load and evaluate trained cells."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.api.tracking import DEFAULT_RUNS, resolve_tracking_store, sync_study
from hqlt_lab.errors import StoreError, format_names
from hqlt_lab.experiment.load_experiment import Experiment, load_experiment
from hqlt_lab.rundir.sync_state import read_sync_state
from hqlt_lab.study.experiment_file_record import open_study
from hqlt_lab.study.plan.study_plan import StudyPlan
from hqlt_lab.study.run_study import make_cell_filter, open_plan

if TYPE_CHECKING:
    from hqlt_lab.study.evaluate_cells import CellEvaluation, CellProgressCallback
    from hqlt_lab.train.cell_evaluator import Split
    from hqlt_lab.train.load_trained_model import LoadedCell


def load(run: str | Path, runs: str | Path = DEFAULT_RUNS) -> "LoadedCell":
    """Load a trained model and its task; `run` is a cell's folder, the beginning of its key, or its MLflow run."""
    from hqlt_lab.train.load_trained_model import load_cell

    return load_cell(find_cell_folder(run, runs))


def find_cell_folder(run: str | Path, runs: str | Path = DEFAULT_RUNS) -> Path:
    """Return the folder of a cell, given by its folder, the beginning of its key, or its MLflow run."""
    if (Path(run) / "cell.json").is_file():
        return Path(run)
    folders = match_folders(Path(runs).glob("studies/*/cells/*/cell.json"), str(run)) or match_folders(
        Path(runs).glob("single/*/*/cell.json"), str(run)
    )
    if len(folders) != 1:
        several = f"{len(folders)} trained cells match {str(run)!r} in {runs}: {format_names(map(str, folders[:5]))}."
        message = several if folders else f"No trained cell matches {str(run)!r} in {runs}."
        raise StoreError(
            f"{message} Give the key, the folder or the MLflow run of a cell; `hqlt status FILE` lists keys."
        )
    return folders[0]


def match_folders(files: Iterable[Path], name: str) -> list[Path]:
    """Return the folders whose key, or else whose MLflow run, begins with `name`.

    A key that occurs in several studies is the same cell; of its folders the best by `folder_rank` is returned.
    """
    folders = [file.parent for file in sorted(files)]
    by_key = [folder for folder in folders if folder.name.startswith(name)]
    best = {folder.stem: folder for folder in sorted(by_key, key=folder_rank)}
    by_run = [folder for folder in folders if (state := read_sync_state(folder)) and state.run.startswith(name)]
    return list(best.values()) or by_run


def folder_rank(folder: Path) -> tuple[bool, int, float]:
    """Return a sort key: finished folders last, then by generation, then by time."""
    return (folder / "outcome.json").exists(), len(folder.suffix), (folder / "cell.json").stat().st_mtime


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Results of one or more trained cells."""

    cells: "list[CellEvaluation]"
    metrics: list[str]  # the most important ones
    sync_warning: str | None = None  # what could not be sent to MLflow yet, as a sentence; None: nothing is missing


def evaluate(
    target: str | Path,
    *,
    lesion: str | None = None,
    split: "Split" = "test",
    probe: bool = False,
    long: int | None = None,
    ruler: bool = False,
    again: bool = False,
    overrides: Sequence[str] = (),
    only: Sequence[str] = (),
    runs: str | Path = DEFAULT_RUNS,
    tracking: str | None = None,
    on_progress: "CellProgressCallback | None" = None,
) -> Evaluation:
    """Evaluate a trained cell, or all reported cells of an experiment file; stored results are reused unless `again`.

    `lesion`: also evaluate with one memory ablated, "fw" or "kv"; `probe`: also probe the memories;
    `long`: evaluate at up to this many times the training length; `ruler`: also evaluate on RULER, up to there.
    """
    from hqlt_lab.report.arm_rows import reported_metrics
    from hqlt_lab.study.evaluate_cells import CellEvalRequest, evaluate_cell, evaluate_cells
    from hqlt_lab.track.mlflow_sync import send_evaluations

    request = CellEvalRequest(split=split, lesion=lesion, probe=probe, long=long, ruler=ruler, again=again)
    if not Path(target).is_file() and Path(target).suffix not in (".yaml", ".yml"):
        folder = find_cell_folder(target, runs)
        cell = evaluate_cell(folder, request)
        metrics = [name for name in cell.scores[request.evaluation_names[0]] if name.count("/") == 1]
        warning = send_evaluations(resolve_tracking_store(runs, tracking), folder) if cell.new else None
        return Evaluation(cells=[cell], metrics=metrics, sync_warning=warning)
    experiment = load_experiment(target, overrides)
    cells = evaluate_cells(require_reported_folders(experiment, runs, only), request, on_progress)
    preferred = [f"{request.split}/{name.partition('/')[2]}" for name in reported_metrics(experiment.measure)]
    scored = {name for cell in cells for scores in cell.scores.values() for name in scores}
    metrics = [name for name in preferred if name in scored] or sorted(name for name in scored if name.count("/") == 1)
    has_new = any(cell.new for cell in cells)
    warning = sync_study(experiment, runs=runs, tracking=tracking) if has_new else None
    return Evaluation(cells=cells, metrics=list(dict.fromkeys(metrics)), sync_warning=warning)


def require_reported_folders(experiment: Experiment, runs: str | Path, only: Sequence[str]) -> list[Path]:
    """Return the folders of the finished cells that the report shows; raise if there is none."""
    folders = list_reported_folders(open_plan(experiment, open_study(runs, experiment.file)), only)
    if not folders:
        raise StoreError(
            f"{experiment.name}: none of these cells has been trained in {runs}. Train them with `hqlt run`."
        )
    return folders


def list_reported_folders(plan: StudyPlan, only: Sequence[str]) -> list[Path]:
    """Return the folders of the finished cells that the report shows."""
    from hqlt_lab.report.arm_rows import build_rows

    is_selected = make_cell_filter(plan.experiment, plan, only)
    keys = {cell_ref.key for cell_ref in plan.list_cells() if is_selected(cell_ref)}
    rows = build_rows(plan.experiment, plan.list_records())
    return [record.folder for row in rows for record in row.finished_records if record.key in keys]
