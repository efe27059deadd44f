"""The calls to MLflow: one experiment per experiment file, a parent run for the study, and a child run per cell.

All runs of a study are looked up in one search.  So a run whose id was lost is found by its tags, and ids missing
from a new database are detected, without a request per cell.

A crash may follow any call, and every call may be repeated: runs are found by their tags, a value that is sent
twice is stored once (its key in MLflow is all of name, value, time and step), and the sync state is written after the
data was sent.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hqlt_lab.hashing import hash_json
from hqlt_lab.rundir import metrics as metrics_file
from hqlt_lab.rundir.cell_state import TERMINAL_STATES
from hqlt_lab.rundir.metrics import MetricsRow
from hqlt_lab.rundir.sync_state import SyncState, read_sync_state
from hqlt_lab.track.mlflow_content import (
    artifact_paths,
    end_time_ms,
    evaluation_rows,
    outcome_rows,
    read_results_text,
    start_time_ms,
)
from hqlt_lab.track.saved_view import VIEW_TAG, build_view
from hqlt_lab.track.study_description import CellInfo, StudyInfo
from hqlt_lab.track.tags import MLFLOW_STATUS, cell_params, cell_tags, sanitize_key, study_tags
from hqlt_lab.track.tracking_store import StoreConnection, TrackingStore

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput, Metric, Run


EXPERIMENT_KIND = "custom_model_development"  # the UI then shows runs and charts instead of LLM traces


@dataclass
class MlflowRun:
    """The fields of an MLflow run that the writer uses."""

    id: str
    artifact_uri: str
    status: str = "RUNNING"
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    has_dataset: bool = False  # whether the task is logged as its dataset


@dataclass
class StudyRuns:
    """The experiment and runs of a study in MLflow."""

    experiment_id: str
    parent_run: MlflowRun
    cell_runs: dict[str, MlflowRun]  # by cell key
    store_identity: tuple[int, int] | None  # of the SQLite file at the time of the lookup


def find_or_create_study_runs(
    client: "MlflowClient", tracking_store: TrackingStore, study: StudyInfo, store_identity: tuple[int, int] | None
) -> StudyRuns:
    """Find the experiment and runs of a study; create the experiment and the parent run if they are missing."""
    experiment_id = find_or_create_experiment(client, tracking_store, study)
    parent_run: MlflowRun | None = None
    cell_runs: dict[str, MlflowRun] = {}
    for run in iterate_runs(client, experiment_id):
        if run.tags.get("hqlt.kind") == "study":
            parent_run = parent_run or run
        elif key := run.tags.get("hqlt.cell"):
            cell_runs.setdefault(key, run)  # the oldest if there are several
    parent_run = parent_run or create_run(client, experiment_id, study_tags(study))
    return StudyRuns(experiment_id, parent_run, cell_runs, store_identity)


def find_or_create_experiment(client: "MlflowClient", tracking_store: TrackingStore, study: StudyInfo) -> str:
    """Return MLflow's id of the study's experiment, which is created if missing and restored if deleted."""
    experiment = client.get_experiment_by_name(study.name)
    if experiment is None:
        root = tracking_store.artifact_root
        artifact_location = f"{root}/{sanitize_key(study.name)}" if root else None
        return client.create_experiment(study.name, artifact_location=artifact_location)
    if experiment.lifecycle_stage == "deleted":
        client.restore_experiment(experiment.experiment_id)
    return experiment.experiment_id


def iterate_runs(client: "MlflowClient", experiment_id: str) -> Iterator[MlflowRun]:
    """Yield all runs of an experiment, the oldest first."""
    token = None
    while True:
        page = client.search_runs([experiment_id], max_results=1000, order_by=["start_time ASC"], page_token=token)
        for run in page:
            yield to_mlflow_run(run)
        token = page.token
        if not token:
            return


def find_run(client: "MlflowClient", experiment_id: str, run_id: str) -> MlflowRun | None:
    """Return a run of the experiment by its id; None if it does not exist or was deleted."""
    from mlflow.exceptions import MlflowException

    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise
    is_active = run.info.experiment_id == experiment_id and run.info.lifecycle_stage == "active"
    return to_mlflow_run(run) if is_active else None


def to_mlflow_run(run: "Run") -> MlflowRun:
    """Convert an MLflow `Run` entity to an `MlflowRun`."""
    has_dataset = bool(run.inputs and run.inputs.dataset_inputs)
    info, data = run.info, run.data
    return MlflowRun(info.run_id, info.artifact_uri, info.status, dict(data.tags), dict(data.params), has_dataset)


def create_run(
    client: "MlflowClient", experiment_id: str, tags: dict[str, str], start_time: int | None = None
) -> MlflowRun:
    """Create a run with all its tags in one call."""
    run = client.create_run(experiment_id, start_time=start_time, tags=tags, run_name=tags["mlflow.runName"])
    return MlflowRun(run.info.run_id, run.info.artifact_uri, run.info.status, dict(tags))


def dataset_input(task: Mapping[str, Any]) -> "DatasetInput":
    """Return a task as an MLflow dataset: its name and a digest of its options."""
    from mlflow.entities import Dataset, DatasetInput

    name, source = str(task.get("name", "unknown")), json.dumps(task, sort_keys=True)
    return DatasetInput(Dataset(name, hash_json(dict(task)), source_type="hqlt_task", source=source))


def log_study_metadata(
    client: "MlflowClient", tracking_store: TrackingStore, study: StudyInfo, study_runs: StudyRuns
) -> None:
    """Log the question, settings, provenance and saved view of a study, unless MLflow has them already."""
    from mlflow.entities import RunTag

    tags, view = study_tags(study), json.dumps(build_view(study))
    sync_state = SyncState(
        uri=tracking_store.redacted_uri,
        experiment=study_runs.experiment_id,
        run=study_runs.parent_run.id,
        digest=hash_json([tags, study.config, study.provenance, view]),
    )
    if read_sync_state(study.folder) == sync_state:
        return
    experiment_tags = {"mlflow.note.content": study.question, "mlflow.experimentKind": EXPERIMENT_KIND, VIEW_TAG: view}
    for name, value in experiment_tags.items():
        client.set_experiment_tag(study_runs.experiment_id, name, value)
    client.log_batch(
        study_runs.parent_run.id, tags=[RunTag(name, value) for name, value in tags.items()], synchronous=True
    )
    for name, text in study_files(study).items():
        client.log_text(study_runs.parent_run.id, text, name)
    study.folder.mkdir(parents=True, exist_ok=True)
    sync_state.write(study.folder)


def study_files(study: StudyInfo) -> dict[str, str]:
    """Return the artifacts of a study: its settings, and its provenance under a name that contains its hash."""
    repository = dict(study.provenance.get("git") or {})
    diff, name = repository.pop("diff", ""), f"provenance/{hash_json(dict(study.provenance))}"
    provenance = dict(study.provenance) | {"git": repository or None}
    files = {"experiment.yaml": study.config, f"{name}.json": json.dumps(provenance, indent=1), f"{name}.diff": diff}
    return {name: text for name, text in files.items() if text}


READ_CHUNK_BYTES = 1_000_000  # of metrics.jsonl, read at once
MAX_METRICS_PER_CALL = 1000  # limit of MLflow's log_batch


class MlflowWriter:
    """Writes one study to one tracking store.  Errors are raised, and every method may be called again."""

    def __init__(self, tracking_store: TrackingStore, study: StudyInfo) -> None:
        self.tracking_store, self.study = tracking_store, study
        self.connection = StoreConnection(tracking_store)
        self.study_runs: StudyRuns | None = None
        self.batches_sent = 0  # shows progress within a cell with long curves

    def connect_study(self) -> StudyRuns:
        """Return the experiment and runs of the study, looked up again if the database file was replaced."""
        self.client = self.connection.open_client()
        if self.study_runs is None or self.study_runs.store_identity != self.connection.file_identity:
            study_runs = find_or_create_study_runs(
                self.client, self.tracking_store, self.study, self.connection.file_identity
            )
            log_study_metadata(self.client, self.tracking_store, self.study, study_runs)
            self.study_runs = study_runs
        return self.study_runs

    def invalidate(self) -> None:
        """Discard what was looked up, after an error."""
        self.study_runs = None

    def send_cell(self, cell_info: CellInfo) -> None:
        """Send what MLflow does not have of a cell yet."""
        study_runs, folder = self.connect_study(), cell_info.folder
        if not folder.exists() or (cell_info.state == "waiting" and cell_info.key not in study_runs.cell_runs):
            return
        run = self.find_or_create_cell_run(cell_info, study_runs)
        tags = cell_tags(cell_info, self.study, study_runs.parent_run.id)
        sync_state = self.cell_sync_state(cell_info, study_runs, run)
        digest = hash_json([tags, dict(cell_info.code), read_results_text(folder)])
        rows, end = metrics_file.read_rows(folder, sync_state.offset, READ_CHUNK_BYTES)
        if digest == sync_state.digest and not rows:
            return
        if digest != sync_state.digest:
            rows = [*rows, *outcome_rows(folder), *evaluation_rows(folder)]
        while True:
            self.log_rows(run, rows, changed_tags(tags, run.tags), cell_params(cell_info))
            sync_state = replace(sync_state, offset=end)
            rows, end = metrics_file.read_rows(folder, end, READ_CHUNK_BYTES)
            if not rows:
                break
            sync_state.write(folder)
        if digest != sync_state.digest:
            self.send_status_and_artifacts(run, cell_info)
        replace(sync_state, digest=digest).write(folder)

    def find_or_create_cell_run(self, cell_info: CellInfo, study_runs: StudyRuns) -> MlflowRun:
        """Return the run of a cell, with its dataset logged."""
        if cell_info.key not in study_runs.cell_runs:
            tags = cell_tags(cell_info, self.study, study_runs.parent_run.id)
            # another process may have created the run since the lookup
            stored = read_sync_state(cell_info.folder)
            existing = find_run(self.client, study_runs.experiment_id, stored.run) if stored else None
            study_runs.cell_runs[cell_info.key] = existing or create_run(
                self.client, study_runs.experiment_id, tags, start_time_ms(cell_info.folder)
            )
        run = study_runs.cell_runs[cell_info.key]
        if not run.has_dataset:
            self.client.log_inputs(run.id, datasets=[dataset_input(cell_info.task)])
            run.has_dataset = True
        return run

    def cell_sync_state(self, cell_info: CellInfo, study_runs: StudyRuns, run: MlflowRun) -> SyncState:
        """Return how much of a cell this run has.  A stored state of another run or store is ignored."""
        stored = read_sync_state(cell_info.folder)
        if stored is not None and (stored.uri, stored.run) == (self.tracking_store.redacted_uri, run.id):
            return stored
        return SyncState(uri=self.tracking_store.redacted_uri, experiment=study_runs.experiment_id, run=run.id)

    def log_rows(
        self, run: MlflowRun, rows: Sequence[MetricsRow], tags: Mapping[str, str], params: Mapping[str, str]
    ) -> None:
        """Send rows, tags and new parameters in as few calls as MLflow allows."""
        from mlflow.entities import Param, RunTag

        # MLflow does not allow parameters to change; if an arm is renamed, only its tag does
        new_params = [Param(name, value) for name, value in params.items() if name not in run.params]
        new_tags = [RunTag(name, value) for name, value in tags.items()]
        metrics = to_mlflow_metrics(rows)
        while (batch := list(islice(metrics, MAX_METRICS_PER_CALL))) or new_tags or new_params:
            self.client.log_batch(run.id, batch, new_params, new_tags, synchronous=True)
            self.batches_sent += 1
            new_params, new_tags = [], []
        run.tags |= tags
        run.params = dict(params) | run.params

    def send_status_and_artifacts(self, run: MlflowRun, cell_info: CellInfo) -> None:
        """Set the status of a run; once the cell is in a terminal state, also upload its artifacts."""
        if cell_info.state in TERMINAL_STATES:
            self.upload_artifacts(run, cell_info)
            self.client.set_terminated(run.id, MLFLOW_STATUS[cell_info.state], end_time_ms(cell_info.folder))
        elif run.status != MLFLOW_STATUS[cell_info.state]:
            self.client.update_run(run.id, MLFLOW_STATUS[cell_info.state])
        run.status = MLFLOW_STATUS[cell_info.state]

    def upload_artifacts(self, run: MlflowRun, cell_info: CellInfo) -> None:
        """Upload the files of a cell and the hashes of its code."""
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        # the client would look up the run for its artifact URI, which is known here
        repository = get_artifact_repository(run.artifact_uri, tracking_uri=self.tracking_store.uri)
        for file in artifact_paths(cell_info.folder):
            repository.log_artifact(str(file), file.parent.name if file.parent != cell_info.folder else None)
        if cell_info.code:
            with TemporaryDirectory() as folder:
                provenance_file = Path(folder) / "provenance.json"
                provenance_file.write_text(json.dumps({"code": dict(cell_info.code)}, indent=2))
                repository.log_artifact(str(provenance_file))

    def attach_report(self, path: Path) -> None:
        """Upload a file, or all files of a folder, to the study's run."""
        upload = self.client.log_artifacts if path.is_dir() else self.client.log_artifact
        upload(self.connect_study().parent_run.id, str(path), "report")

    def set_study_status(self, status: str) -> None:
        """Set the status of the study's run to "RUNNING" or "FINISHED"."""
        parent = self.connect_study().parent_run
        if parent.status != status:
            self.client.update_run(parent.id, status) if status == "RUNNING" else self.client.set_terminated(parent.id)
            parent.status = status


def to_mlflow_metrics(rows: Sequence[MetricsRow]) -> "Iterator[Metric]":
    """Yield every value of the rows as an MLflow metric."""
    from mlflow.entities import Metric

    for row in rows:
        for name, value in row.metrics.items():
            yield Metric(sanitize_key(name), value, row.time, row.step)


def changed_tags(tags: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
    """Return the tags that are not stored yet or have another value."""
    return {name: value for name, value in tags.items() if stored.get(name) != value}
