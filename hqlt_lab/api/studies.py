"""Run studies, read their status, and load their results."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.api.notebook_progress import make_default_callback
from hqlt_lab.api.report_files import make_reproduction
from hqlt_lab.api.tracking import DEFAULT_RUNS, make_study_info, resolve_tracking_store
from hqlt_lab.api.trained_cells import list_reported_folders
from hqlt_lab.errors import StoreError, did_you_mean, format_names, join_sentences
from hqlt_lab.experiment.load_experiment import (
    Experiment,
    ExperimentFile,
    load_experiment,
    require_source,
    validate_experiment,
)
from hqlt_lab.experiment.yaml.read_experiment_files import apply_set_options, dump_yaml, read_source
from hqlt_lab.files import read_json, write_atomic
from hqlt_lab.registry import export_to_subprocesses, list_loaded_files
from hqlt_lab.rundir.cell_state import SETTLED_STATES
from hqlt_lab.study.executors.local_executor import start_forkserver
from hqlt_lab.study.experiment_file_record import open_study, record_study_file
from hqlt_lab.study.ledger.attempt_history import AttemptHistory
from hqlt_lab.study.ledger.cell_record import CellStates
from hqlt_lab.study.ledger.study_store import STORE_VARIABLE, list_studies
from hqlt_lab.study.notebook_components import write_notebook_components
from hqlt_lab.study.plan.plan_cache import compute_fingerprint, load_plan, save_plan
from hqlt_lab.study.plan.sequential_testing_record import apply_recorded_looks, describe_looks
from hqlt_lab.study.run_study import (
    CellSelection,
    PreparedStudy,
    collect_cell_infos,
    forget_cells,
    make_cell_filter,
    open_plan,
    prepare_study,
    train_study,
)
from hqlt_lab.study.study_callback import StudyCallback

if TYPE_CHECKING:
    import pandas

    from hqlt_lab.report.study_report import Report
    from hqlt_lab.study.ledger.cell_record import CellRecord
    from hqlt_lab.study.lm_eval_cells import ModelResult
    from hqlt_lab.track.mlflow_sync import SyncThread

SYNC_TIMEOUT = 30.0  # seconds without progress after which the study no longer waits for MLflow at its end
SYNC_TIMEOUT_ON_STOP = 2.0  # seconds to wait for MLflow after an interrupt or a full disk


@dataclass(frozen=True, kw_only=True, repr=False)
class StudyResult:
    """Result of `run`. A notebook displays its report and what went wrong."""

    report: "Report"
    complete: bool  # False: interrupted
    sync_warning: str | None  # what could not be sent to MLflow yet, as a sentence; None: nothing is missing
    folder: Path  # of the study, with its report
    figure_errors: tuple[str, ...] = ()  # one sentence for each figure that could not be drawn
    evaluation_errors: tuple[str, ...] = ()  # one sentence for each lm-eval task that could not be evaluated

    @property
    def remarks(self) -> list[str]:
        """One sentence for everything that is missing."""
        interrupted = [] if self.complete else ["The run was interrupted. Repeat the call to resume it."]
        sync_warnings = [self.sync_warning] if self.sync_warning else []
        return [*interrupted, *sync_warnings, *self.figure_errors, *self.evaluation_errors]

    def __repr__(self) -> str:
        return "\n".join([repr(self.report), *self.remarks])

    def _repr_html_(self) -> str:
        from hqlt_lab.report.render.html_page import render_fragment

        return render_fragment(self.report, self.remarks)


def run(
    file: ExperimentFile,
    *,
    overrides: Sequence[str] = (),
    only: Sequence[str] = (),
    limit: int | None = None,
    again: bool = False,
    runs: str | Path = DEFAULT_RUNS,
    tracking: str | None = None,
    callback: StudyCallback | None = None,
) -> StudyResult:
    """Train every cell of the experiment that is not settled yet, and make the report; the same call again resumes.

    In a notebook the progress is displayed, unless a `callback` is passed.
    """
    from hqlt_lab.report.study_report import Report

    callback = callback or make_default_callback()
    models: list[ModelResult] = []
    selection = CellSelection(only=only, limit=limit, again=again)
    with training_context(load_experiment(file, overrides), selection, runs, tracking, callback) as context:
        study, sync_thread = context.study, context.sync_thread
        store, experiment = study.plan.store, study.plan.experiment
        context.complete = train_study(study, limit, callback, sync_thread)
        models = evaluate_reported_cells(study, only, callback) if context.complete and experiment.evaluate else []
        # In a shared study, other workers may have ended before MLflow received the cells that they trained.
        if store.backend.is_shared or any(model.new for model in models):
            for cell_info in collect_cell_infos(study.plan):
                sync_thread.enqueue(cell_info)
        report = Report.from_records(experiment, study.plan.list_records())
        saved = report.save(store.folder, make_reproduction(experiment.file, experiment.overrides, runs, store))
        sync_thread.attach_reports(saved.files)
    return StudyResult(
        report=report,
        complete=context.complete,
        sync_warning=sync_thread.backlog,
        folder=store.folder,
        figure_errors=tuple(saved.figure_errors),
        evaluation_errors=tuple(dict.fromkeys(failure for model in models for failure in model.failures)),
    )


@dataclass(frozen=True, kw_only=True)
class WorkerResult:
    """Result of `join_study`."""

    complete: bool  # False: interrupted
    sync_warning: str | None  # what could not be sent to MLflow yet, as a sentence; None: nothing is missing


def join_study(
    file: ExperimentFile,
    *,
    overrides: Sequence[str] = (),
    only: Sequence[str] = (),
    runs: str | Path = DEFAULT_RUNS,
    tracking: str | None = None,
    callback: StudyCallback | None = None,
) -> WorkerResult:
    """Train cells of a shared study, given by its file or name, until no worker has a cell left to train."""
    callback = callback or make_default_callback()
    experiment = load_experiment(file if isinstance(file, Experiment) else find_study_file(file, runs), overrides)
    with training_context(experiment, CellSelection(only=only), runs, tracking, callback, as_worker=True) as context:
        context.complete = train_study(context.study, None, callback, context.sync_thread)
    return WorkerResult(complete=context.complete, sync_warning=context.sync_thread.backlog)


def find_study_file(target: str | Path, runs: str | Path = DEFAULT_RUNS) -> Path:
    """Return the experiment file, or for the name of a study the copy in its folder, written by its last run."""
    file, folder = Path(target), Path(runs) / "studies" / str(target)
    if file.is_file() or file.suffix in (".yaml", ".yml") or len(file.parts) != 1:
        return file
    if (stored := stored_experiment_file(folder)).is_file():
        return stored
    names = [study.name for study in list_studies(Path(runs)) if stored_experiment_file(study).is_file()]
    raise StoreError(
        join_sentences(
            f"{target}: neither an experiment file nor a study in {runs}.",
            did_you_mean(str(target), names),
            f"Studies: {format_names(names)}." if names else "There are no studies.",
        )
    )


def stored_experiment_file(folder: Path) -> Path:
    """Return the path of a study's stored experiment, in which `extends` and overrides are resolved."""
    return folder / f"{folder.name}.yaml"


@dataclass
class TrainingContext:
    """A prepared study and the thread that sends its results to MLflow."""

    study: PreparedStudy
    sync_thread: "SyncThread"
    complete: bool = False  # set when training was not interrupted


@contextmanager
def training_context(
    experiment: Experiment,
    selection: CellSelection,
    runs: str | Path,
    tracking: str | None,
    callback: StudyCallback,
    as_worker: bool = False,
) -> Iterator[TrainingContext]:
    """Open a study for training: prepare it, write its files, and start the thread that syncs to MLflow.

    At the end it waits for MLflow: as long as cells are being sent if the study is complete, otherwise briefly.
    """
    from hqlt_lab.track.mlflow_sync import SyncThread

    start_forkserver()
    source = require_source(experiment)
    fingerprint = compute_fingerprint(source)
    store = open_study(runs, experiment.file)
    # With HQLT_STORE set, `session` raises an error with better advice.
    if as_worker and not store.backend.is_shared and not os.environ.get(STORE_VARIABLE):
        raise StoreError(
            f"{store.folder}: only one process at a time can run a study that is stored in a file. To share it, store "
            f"it in PostgreSQL: export {STORE_VARIABLE}=postgresql://USER@HOST/DATABASE (docs/cluster.md)."
        )
    with store.session():
        write_notebook_components(experiment, store.folder)
        export_to_subprocesses(list_loaded_files())  # workers are other processes
        env = {"MLFLOW_TRACKING_URI": tracking} if tracking else {}
        study = prepare_study(experiment, store, selection, as_worker, env)
        study_info = make_study_info(experiment, store)
        provenance_file = store.folder / "provenance.json"
        if not as_worker:
            write_atomic(provenance_file, json.dumps(dict(study_info.provenance), indent=1) + "\n")
            record_study_file(store.folder, experiment.file)
        elif provenance_file.exists():  # keep the provenance of the process that started the study
            study_info = replace(study_info, provenance=read_json(provenance_file, dict))
        if not as_worker or not stored_experiment_file(store.folder).exists():
            # launcher overrides belong to this machine, not to the study
            study_overrides = [override for override in source.overrides if not override.startswith("launcher.")]
            study_config = apply_set_options(source.file_config, study_overrides)
            write_atomic(stored_experiment_file(store.folder), dump_yaml(study_config))
            save_plan(study.plan, fingerprint)
        context = TrainingContext(study, SyncThread(resolve_tracking_store(runs, tracking), study_info))
        try:
            yield context
        finally:
            if context.complete:
                context.sync_thread.drain_queue(SYNC_TIMEOUT, callback.on_sync_progress)
            else:
                context.sync_thread.drain_queue(SYNC_TIMEOUT_ON_STOP)


def evaluate_reported_cells(study: PreparedStudy, only: Sequence[str], callback: StudyCallback) -> "list[ModelResult]":
    """Run the file's lm-eval tasks on the reported cells; in a study with `tune` only once all cells are settled."""
    from hqlt_lab.study.lm_eval_cells import evaluate_cells_on_tasks, request_from_config

    plan = study.plan
    config, records = plan.experiment.evaluate, plan.list_records()
    all_settled = all(record.state in SETTLED_STATES for record in records)
    if config is None or (plan.experiment.tune and not all_settled):
        return []
    return evaluate_cells_on_tasks(
        list_reported_folders(plan, only), request_from_config(config), callback.on_evaluation_progress
    )


@dataclass(frozen=True)
class StudyStatus:
    """State of all cells of a study, and its running workers."""

    records: "list[CellRecord]"
    reported_metrics: list[str]  # names
    workers: list[str]  # descriptions of the running workers
    looks: str = ""  # a sentence on the looks that were taken; empty if the number of seeds is fixed


def read_status(
    file: ExperimentFile, *, overrides: Sequence[str] = (), only: Sequence[str] = (), runs: str | Path = DEFAULT_RUNS
) -> StudyStatus:
    """Return the state of every cell; uses the cached plan of the study if nothing has changed since."""
    source = require_source(file) if isinstance(file, Experiment) else read_source(Path(file), overrides)
    store, fingerprint = open_study(runs, source.file), compute_fingerprint(source)
    looks = ""
    if cached_plan := load_plan(store.folder, fingerprint):
        cell_states = CellStates(AttemptHistory(store), store, cached_plan.retries)
        cells = [(cell_ref, cell_ref.point or {}) for cell_ref in cached_plan.select_cells(only)]
        report_metrics = cached_plan.report_metrics
    else:
        plan = open_plan(file if isinstance(file, Experiment) else validate_experiment(source), store)
        cell_states, report_metrics = plan.cell_states, plan.experiment.measure.report
        is_selected = make_cell_filter(plan.experiment, plan, only)
        cells = [(ref, plan.resolve_point(ref) or {}) for ref in plan.list_cells() if is_selected(ref)]
        save_plan(plan, fingerprint)
        if plan.experiment.looks:
            looks = describe_looks(plan.evaluate_looks(), plan.experiment.looks)
    superseded = [record for cell in cells for record in cell_states.list_superseded(*cell)]
    records = [*(cell_states.cell_record(*cell) for cell in cells), *superseded]
    return StudyStatus(records, report_metrics, store.backend.list_workers(), looks)


def forget_study_cells(
    file: ExperimentFile, *, overrides: Sequence[str] = (), only: Sequence[str] = (), runs: str | Path = DEFAULT_RUNS
) -> "list[CellRecord]":
    """Mark all attempts at these cells as superseded; return their records before that."""
    return forget_cells(load_experiment(file, overrides), runs, only)


def make_report(file: str | Path, *, overrides: Sequence[str] = (), runs: str | Path = DEFAULT_RUNS) -> "Report":
    """Return the report on all results in the ledger."""
    from hqlt_lab.report.study_report import Report

    return Report.from_records(*read_records(file, overrides, runs))


def read_records(file: str | Path, overrides: Sequence[str], runs: str | Path) -> "tuple[Experiment, list[CellRecord]]":
    """Return the experiment and a record of every cell; with a cached plan, no model is built to check the file."""
    source = read_source(Path(file), overrides)
    store, fingerprint = open_study(runs, source.file), compute_fingerprint(source)
    if cached_plan := load_plan(store.folder, fingerprint):
        cell_states = CellStates(AttemptHistory(store), store, cached_plan.retries)
        records = [cell_states.cell_record(cell_ref, cell_ref.point or {}) for cell_ref in cached_plan.cells]
        return apply_recorded_looks(validate_experiment(source, cached_plan.warnings), store.folder), records
    plan = open_plan(validate_experiment(source), store)
    save_plan(plan, fingerprint)
    return plan.experiment, plan.list_records()


def results(file: str | Path, *, overrides: Sequence[str] = (), runs: str | Path = DEFAULT_RUNS) -> "pandas.DataFrame":
    """Return a DataFrame with one row per cell: arm, seed, axes, state, metrics, cost."""
    from hqlt_lab.report.render.cells_dataframe import build_frame

    return build_frame(read_records(file, overrides, runs)[1])
