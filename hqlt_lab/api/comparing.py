"""Cells, studies and published values side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.api.tracked import RUNS
from hqlt_lab.api.trained import folder_of
from hqlt_lab.errors import StoreError, did_you_mean, listed
from hqlt_lab.experiment.experiment import load as load_experiment
from hqlt_lab.study.run import open_agenda
from hqlt_lab.study.store import Store, is_study, studies_in

if TYPE_CHECKING:
    from hqlt_lab.report.compare.comparison import Comparison
    from hqlt_lab.report.compare.subject import Study, Trained


def compare(things: Sequence[str | Path], *, change: Sequence[str] = (), runs: str | Path = RUNS) -> "Comparison":
    """What differs between cells, or between studies; of a single file, what differs from its published values."""
    from hqlt_lab.report.compare.comparison import compare as compared

    return compared([subject_of(thing, change, runs) for thing in things])


def subject_of(thing: str | Path, change: Sequence[str], runs: str | Path) -> "Trained | Study":
    """An experiment file, a study by its name or folder, or a cell by its key, folder or MLflow run."""
    from hqlt_lab.report.compare import subject
    from hqlt_lab.study.past import remember
    from hqlt_lab.track.provenance import commits, sources_today

    name, path, root = str(thing), Path(thing), Path(runs).resolve()
    if path.is_file() or path.suffix in (".yaml", ".yml"):
        experiment = load_experiment(path, change)
        store = Store(root, experiment.name)
        records = open_agenda(experiment, store).records()
        return subject.study_of_file(name, experiment, records, commits(store.folder, root / "artifacts"))
    folder = path if is_study(path) else root / "studies" / name
    if is_study(folder):
        home = folder.resolve().parents[1]
        past = remember(Store(home, folder.name))
        return subject.study_of_folder(name, past, commits(folder, home / "artifacts"))
    cell = folder_of_thing(thing, runs)
    return subject.trained(name, cell, sources_today, commits(cell.parents[1], root / "artifacts"))


def folder_of_thing(thing: str | Path, runs: str | Path) -> Path:
    """A cell's folder; the error names studies too."""
    try:
        return folder_of(thing, runs)
    except StoreError as error:
        studies = [folder.name for folder in studies_in(Path(runs))]
        raise StoreError(
            f"{error} A study is named by its file, or as one of: {listed(studies)}.{did_you_mean(str(thing), studies)}"
        ) from error
