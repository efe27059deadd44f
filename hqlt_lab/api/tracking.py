"""Studies in MLflow: resolve the tracking store, synchronize a study, and list links to its UI."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.experiment.load_experiment import Experiment, ExperimentFile, load_experiment, require_source
from hqlt_lab.experiment.yaml.read_experiment_files import dump_yaml
from hqlt_lab.redact import split_credentials
from hqlt_lab.rundir.sync_state import read_sync_state
from hqlt_lab.study.experiment_file_record import open_study
from hqlt_lab.study.ledger.study_store import StudyStore
from hqlt_lab.study.run_study import collect_cell_infos, open_plan

if TYPE_CHECKING:
    from hqlt_lab.track.study_description import StudyInfo
    from hqlt_lab.track.tracking_store import TrackingStore

DEFAULT_RUNS = Path("runs")


def resolve_tracking_store(runs: str | Path, uri: str | None = None) -> "TrackingStore":
    """Return the tracking store: `uri`, else MLFLOW_TRACKING_URI, else the default in the runs folder."""
    from hqlt_lab.track.tracking_store import TrackingStore, default_tracking_store

    tracking_uri = uri or os.environ.get("MLFLOW_TRACKING_URI")
    artifacts = os.environ.get("HQLT_ARTIFACTS", "")
    default = default_tracking_store(Path(runs).resolve())
    if not tracking_uri:
        return replace(default, artifacts=artifacts or default.artifacts)
    address = split_credentials(tracking_uri)
    if address.user is not None:  # in MLflow's variables, so that the password is in no message and no file
        os.environ |= {"MLFLOW_TRACKING_USERNAME": address.user, "MLFLOW_TRACKING_PASSWORD": address.password or ""}
    # A server decides where artifacts go, and a SQLite store keeps them beside its file; other databases need an
    # explicit folder.
    store = TrackingStore(address.url, artifacts)
    return store if store.artifact_root or store.is_remote else replace(store, artifacts=default.artifacts)


def make_study_info(experiment: Experiment, store: StudyStore) -> "StudyInfo":
    """Return the description of a study for MLflow, with its resolved settings and provenance."""
    from hqlt_lab.track.provenance import collect_provenance
    from hqlt_lab.track.study_description import build_study_info

    return build_study_info(
        experiment,
        store.folder,
        dump_yaml(require_source(experiment).config),
        collect_provenance(experiment.file.resolve().parent),
    )


def sync_study(
    file: ExperimentFile, *, overrides: Sequence[str] = (), runs: str | Path = DEFAULT_RUNS, tracking: str | None = None
) -> str | None:
    """Send to MLflow what it lacks of a study; return a warning if something could not be sent."""
    from hqlt_lab.track import mlflow_sync

    experiment = load_experiment(file, overrides)
    store = open_study(runs, experiment.file)
    study = make_study_info(experiment, store)
    return mlflow_sync.sync_study(
        resolve_tracking_store(runs, tracking), study, collect_cell_infos(open_plan(experiment, store))
    )


def list_study_links(address: str, runs: str | Path = DEFAULT_RUNS, file: Path | None = None) -> list[tuple[str, str]]:
    """Return (name, URL) of each study, or of the one of that file, on a server at this address."""
    from hqlt_lab.track.saved_view import study_url

    folders = sorted((Path(runs) / "studies").glob("*"))
    folders = [folder for folder in folders if file is None or folder.name == file.stem]
    return [
        (folder.name, study_url(address, state.experiment)) for folder in folders if (state := read_sync_state(folder))
    ]
