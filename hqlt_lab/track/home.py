"""A study's place in MLflow: its experiment, its parent run, and which cells have a run there already.

One search tells all: so a run whose id was lost is found again by its tags, and an id that a new database does not
know is noticed, without a question per cell.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hqlt_lab.experiment.cell import digest
from hqlt_lab.track.card import StudyCard
from hqlt_lab.track.sent import Sent, read_sent
from hqlt_lab.track.store import Tracker
from hqlt_lab.track.view import TAG as VIEW
from hqlt_lab.track.view import view_of
from hqlt_lab.track.words import clean, study_tags

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput

KIND = "custom_model_development"  # so that the browser shows runs and charts, not traces of language models


@dataclass
class Run:
    """A run as MLflow has it."""

    id: str
    status: str = "RUNNING"
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    has_data: bool = False  # whether it knows what it learns from


@dataclass
class Home:
    """Where a study's runs are."""

    experiment: str
    parent: Run
    cells: dict[str, Run]  # by key
    identity: tuple[int, int] | None  # of the database file when this was looked up


def home_of(client: "MlflowClient", tracker: Tracker, study: StudyCard, identity: tuple[int, int] | None) -> Home:
    """Look a study up, and make what is not there."""
    experiment = experiment_of(client, tracker, study)
    parent: Run | None = None
    cells: dict[str, Run] = {}
    for run in runs_in(client, experiment):
        if run.tags.get("hqlt.kind") == "study":
            parent = parent or run
        elif key := run.tags.get("hqlt.cell"):
            cells.setdefault(key, run)  # the oldest, should there be two
    return Home(experiment, parent or new_run(client, experiment, study_tags(study)), cells, identity)


def experiment_of(client: "MlflowClient", tracker: Tracker, study: StudyCard) -> str:
    """MLflow's id of the study's experiment; one in the bin is taken out of it."""
    found = client.get_experiment_by_name(study.name)
    if found is None:
        place = f"{tracker.files}/{clean(study.name)}" if tracker.files else None
        return client.create_experiment(study.name, artifact_location=place)
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return found.experiment_id


def runs_in(client: "MlflowClient", experiment: str) -> Iterator[Run]:
    """All runs of an experiment, the oldest first."""
    page = None
    while True:
        found = client.search_runs([experiment], max_results=1000, order_by=["start_time ASC"], page_token=page)
        for run in found:
            yield as_run(run)
        page = found.token
        if not page:
            return


def found_run(client: "MlflowClient", experiment: str, id: str) -> Run | None:
    """A run of the experiment by its id, if MLflow still knows it."""
    from mlflow.exceptions import MlflowException

    try:
        run = client.get_run(id)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise
    there = run.info.experiment_id == experiment and run.info.lifecycle_stage == "active"
    return as_run(run) if there else None


def as_run(run: Any) -> Run:
    """What we need to know of a run."""
    has_data = bool(run.inputs and run.inputs.dataset_inputs)
    return Run(run.info.run_id, run.info.status, dict(run.data.tags), dict(run.data.params), has_data)


def new_run(client: "MlflowClient", experiment: str, tags: dict[str, str], began: int | None = None) -> Run:
    """Make a run, with all its tags in one call."""
    made = client.create_run(experiment, start_time=began, tags=tags, run_name=tags["mlflow.runName"])
    return Run(made.info.run_id, made.info.status, dict(tags))


def data_of(task: Mapping[str, Any]) -> "DatasetInput":
    """What a cell learns, as MLflow's data sets are told: by name and a digest of all options."""
    from mlflow.entities import Dataset, DatasetInput

    told = json.dumps(task, sort_keys=True)
    name = str(task.get("name", "unknown"))
    return DatasetInput(Dataset(name, digest(dict(task)), source_type="hqlt_task", source=told))


def introduce(client: "MlflowClient", tracker: Tracker, study: StudyCard, home: Home) -> None:
    """Tell MLflow what the study is: its question, its settings, what made it, and how to look at it."""
    from mlflow.entities import RunTag

    tags, view = study_tags(study), json.dumps(view_of(study))
    told = digest([tags, study.config, study.provenance, view])
    sent = Sent(uri=tracker.shown, experiment=home.experiment, run=home.parent.id, told=told)
    if read_sent(study.folder) == sent:
        return
    notes = {"mlflow.note.content": study.question, "mlflow.experimentKind": KIND, VIEW: view}
    for name, value in notes.items():
        client.set_experiment_tag(home.experiment, name, value)
    client.log_batch(home.parent.id, tags=[RunTag(name, value) for name, value in tags.items()], synchronous=True)
    for name, text in files_of(study).items():
        client.log_text(home.parent.id, text, name)
    study.folder.mkdir(parents=True, exist_ok=True)
    sent.note(study.folder)


def files_of(study: StudyCard) -> dict[str, str]:
    """The study's settings and provenance; each call of the lab that differs leaves its own."""
    repository = dict(study.provenance.get("git") or {})
    diff, name = repository.pop("diff", ""), f"provenance/{digest(dict(study.provenance))}"
    told = dict(study.provenance) | {"git": repository or None}
    files = {"experiment.yaml": study.config, f"{name}.json": json.dumps(told, indent=1), f"{name}.diff": diff}
    return {name: text for name, text in files.items() if text}
