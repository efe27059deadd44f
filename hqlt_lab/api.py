"""The lab from Python: what the command line does, without the printing.

done = lab.run("experiments/first_run.yaml")          trains what is missing, and reports
table = lab.results("experiments/first_run.yaml")     a tidy DataFrame, one line per cell
again = lab.evaluate("3f2c91", lesion="fw")           what a trained cell scores without its fast weights
model, task = lab.load("3f2c91")                      of a trained cell: its key, its folder or its MLflow run
"""

import json
import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.errors import StoreError, did_you_mean, listed
from hqlt_lab.experiment.experiment import Experiment
from hqlt_lab.experiment.experiment import load as load_experiment
from hqlt_lab.experiment.read import as_yaml, read
from hqlt_lab.registry import hand_on, included
from hqlt_lab.study.crew import warm_up
from hqlt_lab.study.run import Choice, cards, open_agenda, prepare, train, wanted
from hqlt_lab.study.run import forget as forget_cells
from hqlt_lab.study.store import Store
from hqlt_lab.study.view import View
from hqlt_lab.track.sent import read_sent
from hqlt_lab.train.files import write

if TYPE_CHECKING:
    import pandas

    from hqlt_lab.report.compare.comparison import Comparison
    from hqlt_lab.report.compare.subject import Study, Trained
    from hqlt_lab.report.page import Making
    from hqlt_lab.report.report import Report
    from hqlt_lab.report.saved import Saved
    from hqlt_lab.study.evaluate import Evaluated, Told
    from hqlt_lab.study.record import Record
    from hqlt_lab.track.card import StudyCard
    from hqlt_lab.track.store import Tracker
    from hqlt_lab.train.evaluate import Split
    from hqlt_lab.train.load import Loaded

RUNS = Path("runs")
PATIENCE = 30.0  # seconds that MLflow gets in the end to take in the rest


@dataclass(frozen=True, kw_only=True)
class Finished:
    """What came of a run of a study."""

    report: "Report"
    complete: bool  # False: it was stopped
    untracked: str | None  # what MLflow does not have yet
    folder: Path  # of the study; its report is in it
    undrawn: tuple[str, ...] = ()  # figures that could not be drawn, each in a sentence


def run(
    file: str | Path,
    *,
    change: Sequence[str] = (),
    only: Sequence[str] = (),
    limit: int | None = None,
    again: bool = False,
    runs: str | Path = RUNS,
    tracking: str | None = None,
    view: View | None = None,
) -> Finished:
    """Train every cell of the file that is not settled yet, and report; the same call again resumes."""
    from hqlt_lab.report.report import Report
    from hqlt_lab.track.courier import Courier

    hand_on(included())  # workers are other processes
    warm_up()
    experiment = load_experiment(file, change)
    only = [only] if isinstance(only, str) else only
    store, choice = Store(runs, experiment.name), Choice(only=only, limit=limit, again=again)
    with store.owned():
        study = prepare(experiment, store, choice)
        card = card_of(experiment, store, Path(file), change)
        write(store.folder / "provenance.json", json.dumps(dict(card.provenance), indent=1) + "\n")
        courier = Courier(tracker_of(runs, tracking), card)
        try:
            complete = train(study, limit, view or View(), courier)
            report = Report.make(experiment, study.agenda.records())
            saved = report.save(store.folder, making_of(Path(file), change, runs, store))
            courier.report(saved.files)
        finally:
            untracked = courier.finish(PATIENCE)
    return Finished(
        report=report, complete=complete, untracked=untracked, folder=store.folder, undrawn=tuple(saved.troubles)
    )


@dataclass(frozen=True)
class Status:
    """How far a study is."""

    records: "list[Record]"
    report: list[str]  # the metrics that count
    busy: bool  # whether someone is at work on it


def status(
    file: str | Path, *, change: Sequence[str] = (), only: Sequence[str] = (), runs: str | Path = RUNS
) -> Status:
    """Every cell as it stands."""
    experiment = load_experiment(file, change)
    store = Store(runs, experiment.name)
    agenda = open_agenda(experiment, store)
    wish = wanted(experiment, agenda, only)
    chosen = {place.key for place in agenda.places() if wish(place)}
    records = [record for record in [*agenda.records(), *agenda.superseded()] if record.key in chosen]
    return Status(records, experiment.measure.report, store.busy())


def forget(
    file: str | Path, *, change: Sequence[str] = (), only: Sequence[str] = (), runs: str | Path = RUNS
) -> "list[Record]":
    """Mark what is known of these cells as superseded; how they stood until now."""
    return forget_cells(load_experiment(file, change), runs, only)


def report(file: str | Path, *, change: Sequence[str] = (), runs: str | Path = RUNS) -> "Report":
    """What is known so far, from the ledger alone."""
    from hqlt_lab.report.report import Report

    experiment = load_experiment(file, change)
    return Report.make(experiment, open_agenda(experiment, Store(runs, experiment.name)).records())


def save_report(
    made: "Report",
    file: str | Path,
    folder: str | Path | None = None,
    *,
    change: Sequence[str] = (),
    runs: str | Path = RUNS,
) -> "Saved":
    """Write a report with all its files and how to make it again: into this folder, or into the study's own."""
    store = Store(runs, made.experiment.name)
    return made.save(Path(folder or store.folder), making_of(Path(file), change, runs, store))


def making_of(file: Path, change: Sequence[str], runs: str | Path, store: Store) -> "Making":
    """How the study can be made again, and what made it."""
    from hqlt_lab.report.page import Making
    from hqlt_lab.track.provenance import provenance

    outside = [word for one in included() for word in ("--with", os.path.relpath(one))]
    more = [word for one in change for word in ("--set", one)]
    more += ["--runs", str(runs)] if Path(runs) != RUNS else []
    commands = [shlex.join(["hqlt", *outside, verb, str(file), *more]) for verb in ("run", "report")]
    known = store.folder / "provenance.json"
    return Making(commands, json.loads(known.read_text()) if known.exists() else provenance(file.resolve().parent))


def results(file: str | Path, *, change: Sequence[str] = (), runs: str | Path = RUNS) -> "pandas.DataFrame":
    """One line per cell: arm, seed, axes, state, metrics, cost."""
    from hqlt_lab.report.frame import frame

    experiment = load_experiment(file, change)
    return frame(open_agenda(experiment, Store(runs, experiment.name)).records())


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What trained cells answered."""

    cells: "list[Evaluated]"
    metrics: list[str]  # those to look at first
    untracked: str | None = None  # what MLflow does not have yet


def evaluate(
    target: str | Path,
    *,
    lesion: str | None = None,
    split: "Split" = "test",
    probe: bool = False,
    again: bool = False,
    change: Sequence[str] = (),
    only: Sequence[str] = (),
    runs: str | Path = RUNS,
    tracking: str | None = None,
    told: "Told | None" = None,
) -> Evaluation:
    """Score a trained cell again, or all of a file's at their chosen points; what was asked before is remembered.

    `lesion`: also with that memory silent, "fw" or "kv"; `probe`: look into the memories too.
    """
    from hqlt_lab.report.rows import reported
    from hqlt_lab.study.evaluate import Question, evaluate_cell, evaluate_cells
    from hqlt_lab.track.courier import send_evaluations

    question = Question(split=split, lesion=lesion, probe=probe, again=again)
    if not Path(target).is_file():
        folder = folder_of(target, runs)
        cell = evaluate_cell(folder, question)
        metrics = [name for name in cell.scores[question.names[0]] if name.count("/") == 1]
        behind = send_evaluations(tracker_of(runs, tracking), folder) if cell.new else None
        return Evaluation(cells=[cell], metrics=metrics, untracked=behind)
    experiment = load_experiment(target, change)
    cells = evaluate_cells(chosen_folders(experiment, runs, only), question, told)
    metrics = [f"{question.split}/{name.partition('/')[2]}" for name in reported(experiment.measure)]
    new = any(cell.new for cell in cells)
    behind = catch_up(target, change=change, runs=runs, tracking=tracking) if new else None
    return Evaluation(cells=cells, metrics=list(dict.fromkeys(metrics)), untracked=behind)


def chosen_folders(experiment: Experiment, runs: str | Path, only: Sequence[str]) -> list[Path]:
    """Of the finished cells that the report shows."""
    from hqlt_lab.report.rows import rows_of

    agenda = open_agenda(experiment, Store(runs, experiment.name))
    wish = wanted(experiment, agenda, [only] if isinstance(only, str) else only)
    keys = {place.key for place in agenda.places() if wish(place)}
    rows = rows_of(experiment, agenda.records())
    found = [record.folder for row in rows for record in row.done if record.key in keys]
    if not found:
        raise StoreError(f"{experiment.name}: none of these cells is trained under {runs}. Train them with `hqlt run`.")
    return found


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
    folder = path if (path / "cells.journal").is_file() else root / "studies" / name
    if (folder / "cells.journal").is_file():
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
        studies = [journal.parent.name for journal in sorted(Path(runs).glob("studies/*/cells.journal"))]
        raise StoreError(
            f"{error} A study is named by its file, or as one of: {listed(studies)}.{did_you_mean(str(thing), studies)}"
        ) from error


def tracker_of(runs: str | Path, uri: str | None = None) -> "Tracker":
    """Where MLflow keeps things: what was asked for, what the environment says, or in the folder of runs."""
    from hqlt_lab.track.store import Tracker, default_tracker

    chosen = uri or os.environ.get("MLFLOW_TRACKING_URI")
    return Tracker(chosen) if chosen else default_tracker(Path(runs).resolve())


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


def load(run: str | Path, runs: str | Path = RUNS) -> "Loaded":
    """The trained model and its task; `run` is a cell's folder, the beginning of its key, or its MLflow run."""
    from hqlt_lab.train.load import load_cell

    return load_cell(folder_of(run, runs))


def folder_of(run: str | Path, runs: str | Path = RUNS) -> Path:
    """Where a run is kept."""
    if (Path(run) / "cell.json").is_file():
        return Path(run)
    found = matching(Path(runs).glob("studies/*/cells/*/cell.json"), str(run)) or matching(
        Path(runs).glob("single/*/*/cell.json"), str(run)
    )
    if len(found) != 1:
        several = f"{len(found)} fit: {listed(map(str, found[:5]))}" if found else "there is none"
        raise StoreError(
            f"{run}: one cell is needed, by its folder, its key or its MLflow run; under {runs} {several}. "
            "`hqlt status FILE` lists keys."
        )
    return found[0]


def matching(files: Iterable[Path], name: str) -> list[Path]:
    """The folders of these cells whose key begins so, each key in its newest generation, or whose MLflow run does."""
    folders = [file.parent for file in sorted(files)]
    keys = [folder for folder in folders if folder.name.startswith(name)]
    newest = {folder.parent / folder.stem: folder for folder in sorted(keys, key=lambda one: len(one.suffix))}
    runs = [folder for folder in folders if (sent := read_sent(folder)) and sent.run.startswith(name)]
    return list(newest.values()) or runs
