"""A study in MLflow: where it is kept, what it lacks, where it is looked at."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.experiment.experiment import Experiment
from hqlt_lab.experiment.experiment import load as load_experiment
from hqlt_lab.experiment.read import as_yaml, read
from hqlt_lab.secrets import parted
from hqlt_lab.study.run import cards, open_agenda
from hqlt_lab.study.store import Store
from hqlt_lab.track.sent import read_sent

if TYPE_CHECKING:
    from hqlt_lab.track.card import StudyCard
    from hqlt_lab.track.store import Tracker

RUNS = Path("runs")


def tracker_of(runs: str | Path, uri: str | None = None) -> "Tracker":
    """Where MLflow keeps things: what was asked for, what the environment says, or in the folder of runs."""
    from hqlt_lab.track.store import Tracker, default_tracker

    chosen, files = uri or os.environ.get("MLFLOW_TRACKING_URI"), os.environ.get("HQLT_ARTIFACTS", "")
    default = default_tracker(Path(runs).resolve())
    if not chosen:
        return replace(default, artifacts=files or default.artifacts)
    found = parted(chosen)
    if found.user is not None:  # where MLflow looks for it, and where it ends up in no message and no file
        os.environ |= {"MLFLOW_TRACKING_USERNAME": found.user, "MLFLOW_TRACKING_PASSWORD": found.password or ""}
    # a server says itself where files go, and a SQLite file has them beside it; another database does not know
    bare = Tracker(found.address, files)
    return bare if bare.files or bare.served else replace(bare, artifacts=default.artifacts)


def card_of(experiment: Experiment, store: Store, file: Path, change: Sequence[str]) -> "StudyCard":
    """The study for MLflow, with its settings as they were read."""
    from hqlt_lab.track.card import study_card
    from hqlt_lab.track.provenance import provenance

    return study_card(experiment, store.folder, as_yaml(read(file, change)), provenance(file.resolve().parent))


def catch_up(
    file: str | Path, *, change: Sequence[str] = (), runs: str | Path = RUNS, tracking: str | None = None
) -> str | None:
    """Send to MLflow what it lacks of a study; what could not be sent, in a sentence."""
    from hqlt_lab.track import courier

    experiment = load_experiment(file, change)
    store = Store(runs, experiment.name)
    study = card_of(experiment, store, Path(file), change)
    return courier.catch_up(tracker_of(runs, tracking), study, cards(open_agenda(experiment, store)))


def links(address: str, runs: str | Path = RUNS, file: Path | None = None) -> list[tuple[str, str]]:
    """Each study, or the one of that file, and where a server at this address shows it."""
    from hqlt_lab.track.view import link

    folders = [
        folder for folder in sorted((Path(runs) / "studies").glob("*")) if file is None or folder.name == file.stem
    ]
    return [(folder.name, link(address, sent.experiment)) for folder in folders if (sent := read_sent(folder))]
