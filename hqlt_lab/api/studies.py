"""Whole studies: run one, see how far it is, read what came of it."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.api.tracked import RUNS, card_of, tracker_of
from hqlt_lab.api.trained import reported_folders
from hqlt_lab.api.written import making_of
from hqlt_lab.errors import StoreError, did_you_mean, listed
from hqlt_lab.experiment.experiment import load as load_experiment
from hqlt_lab.experiment.read import as_yaml, read
from hqlt_lab.files import read_json, write
from hqlt_lab.registry import hand_on, included
from hqlt_lab.study.attempts import Attempts
from hqlt_lab.study.crew import warm_up
from hqlt_lab.study.outline import keep, kept, sign
from hqlt_lab.study.record import SETTLED
from hqlt_lab.study.run import Choice, Prepared, cards, open_agenda, prepare, train, wanted
from hqlt_lab.study.run import forget as forget_cells
from hqlt_lab.study.standing import Standing
from hqlt_lab.study.store import ENVIRONMENT, Store, studies_in
from hqlt_lab.study.view import View

if TYPE_CHECKING:
    import pandas

    from hqlt_lab.report.report import Report
    from hqlt_lab.study.harness import Judged
    from hqlt_lab.study.record import Record
    from hqlt_lab.track.courier import Courier

PATIENCE = 30.0  # seconds that MLflow gets in the end to take in the rest
HASTE = 2.0  # the same where somebody wants this to stop, or the disk is full


@dataclass(frozen=True, kw_only=True)
class Finished:
    """What came of a run of a study."""

    report: "Report"
    complete: bool  # False: it was stopped
    untracked: str | None  # what MLflow does not have yet
    folder: Path  # of the study; its report is in it
    undrawn: tuple[str, ...] = ()  # figures that could not be drawn, each in a sentence
    unanswered: tuple[str, ...] = ()  # tasks of lm-eval that could not be asked, each in a sentence


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

    watched = view or View()
    models: list[Judged] = []
    with at_work(file, change, Choice(only=only, limit=limit, again=again), runs, tracking) as work:
        study, courier = work.study, work.courier
        store, experiment = study.agenda.store, study.agenda.experiment
        work.complete = train(study, limit, watched, courier)
        models = ask_reported(study, only, watched) if work.complete and experiment.evaluate else []
        # others have trained some, and may have ended before MLflow took them in
        for changed in cards(study.agenda) if store.book.shared or any(model.new for model in models) else ():
            courier.tell(changed)
        report = Report.make(experiment, study.agenda.records())
        saved = report.save(store.folder, making_of(Path(file), change, runs, store))
        courier.report(saved.files)
    return Finished(
        report=report,
        complete=work.complete,
        untracked=courier.left,
        folder=store.folder,
        undrawn=tuple(saved.troubles),
        unanswered=tuple(dict.fromkeys(trouble for model in models for trouble in model.troubles)),
    )


@dataclass(frozen=True, kw_only=True)
class Joined:
    """What came of joining a study."""

    complete: bool  # False: it was stopped
    untracked: str | None  # what MLflow does not have yet


def worker(
    file: str | Path,
    *,
    change: Sequence[str] = (),
    only: Sequence[str] = (),
    runs: str | Path = RUNS,
    tracking: str | None = None,
    view: View | None = None,
) -> Joined:
    """Join a study that several programs share, by its file or its name, until nothing is left to do for anybody."""
    with at_work(study_file(file, runs), change, Choice(only=only), runs, tracking, joining=True) as work:
        work.complete = train(work.study, None, view or View(), work.courier)
    return Joined(complete=work.complete, untracked=work.courier.left)


def study_file(told: str | Path, runs: str | Path = RUNS) -> Path:
    """An experiment file; or what a study of that name keeps of its own, as it was read when it was last run."""
    file, folder = Path(told), Path(runs) / "studies" / str(told)
    if file.is_file() or file.suffix in (".yaml", ".yml") or len(file.parts) != 1:
        return file
    if (kept := kept_file(folder)).is_file():
        return kept
    known = [one.name for one in studies_in(Path(runs)) if kept_file(one).is_file()]
    raise StoreError(
        f"{told}: this is no experiment file, and no study in {runs}.{did_you_mean(str(told), known)} "
        f"{f'Studies: {listed(known)}.' if known else 'No study was begun there.'}"
    )


def kept_file(folder: Path) -> Path:
    """The experiment of a study, in its folder: all that it extends and was changed is in it."""
    return folder / f"{folder.name}.yaml"


@dataclass
class Work:
    """A study that is trained here, and the one who tells MLflow of it."""

    study: Prepared
    courier: "Courier"
    complete: bool = False  # whether it came to its end


@contextmanager
def at_work(
    file: str | Path,
    change: Sequence[str],
    choice: Choice,
    runs: str | Path,
    tracking: str | None,
    joining: bool = False,
) -> Iterator[Work]:
    """A study that we may train."""
    from hqlt_lab.track.courier import Courier

    hand_on(included())  # workers are other processes
    warm_up()
    made_of, experiment = sign(Path(file), change), load_experiment(file, change)
    store = Store(runs, experiment.name)
    if joining and not store.book.shared and not os.environ.get(ENVIRONMENT):  # else `owned` says what to do
        raise StoreError(
            f"{store.folder}: one program at a time may work on a study that is kept in a file. To share its cells, "
            f"keep it in PostgreSQL: export {ENVIRONMENT}=postgresql://USER@HOST/DATABASE (docs/cluster.md)."
        )
    with store.owned():
        study = prepare(experiment, store, choice, joining, {"MLFLOW_TRACKING_URI": tracking} if tracking else {})
        card, made_by = card_of(experiment, store, Path(file), change), store.folder / "provenance.json"
        if not joining:
            write(made_by, json.dumps(dict(card.provenance), indent=1) + "\n")
        elif made_by.exists():  # the study is theirs who began it
            card = replace(card, provenance=read_json(made_by))
        if not joining or not kept_file(store.folder).exists():
            ours = [one for one in change if not one.startswith("launcher.")]  # of this machine, not of the study
            write(kept_file(store.folder), as_yaml(read(Path(file), ours)))
            keep(study.agenda, made_of)
        work = Work(study, Courier(tracker_of(runs, tracking), card))
        try:
            yield work
        finally:
            work.courier.finish(PATIENCE if work.complete else HASTE)


def ask_reported(study: Prepared, only: Sequence[str], view: View) -> "list[Judged]":
    """What the file asks of the cells that the report shows: after a choice among tuned points, those of the best."""
    from hqlt_lab.study.harness import asked_by, judge_cells

    agenda = study.agenda
    config, records = agenda.experiment.evaluate, agenda.records()
    settled = all(record.state in SETTLED for record in records)
    if config is None or (agenda.experiment.tune and not settled):
        return []
    return judge_cells(reported_folders(agenda, only), asked_by(config), view.evaluating)


@dataclass(frozen=True)
class Status:
    """How far a study is."""

    records: "list[Record]"
    report: list[str]  # the metrics that count
    workers: list[str]  # who is at work on it, for people


def status(
    file: str | Path, *, change: Sequence[str] = (), only: Sequence[str] = (), runs: str | Path = RUNS
) -> Status:
    """Every cell as it stands; from the plan that the study keeps, if nothing has changed since."""
    store, made_of = Store(runs, Path(file).stem), sign(Path(file), change)
    if outline := kept(store.folder, made_of):
        standing = Standing(Attempts(store), store, outline.retries)
        cells = [(place, place.point or {}) for place in outline.chosen(only)]
        report = outline.report
    else:
        agenda = open_agenda(load_experiment(file, change), store)
        standing, report = agenda.standing, agenda.experiment.measure.report
        wish = wanted(agenda.experiment, agenda, only)
        cells = [(place, agenda.point(place) or {}) for place in agenda.places() if wish(place)]
        keep(agenda, made_of)
    older = [record for cell in cells for record in standing.superseded(*cell)]
    return Status([*(standing.record(*cell) for cell in cells), *older], report, store.book.workers())


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


def results(file: str | Path, *, change: Sequence[str] = (), runs: str | Path = RUNS) -> "pandas.DataFrame":
    """One line per cell: arm, seed, axes, state, metrics, cost."""
    from hqlt_lab.report.frame import frame

    experiment = load_experiment(file, change)
    return frame(open_agenda(experiment, Store(runs, experiment.name)).records())
