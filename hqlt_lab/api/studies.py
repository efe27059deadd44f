"""Whole studies: run one, see how far it is, read what came of it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.api.tracked import RUNS, card_of, tracker_of
from hqlt_lab.api.trained import reported_folders
from hqlt_lab.api.written import making_of
from hqlt_lab.experiment.experiment import load as load_experiment
from hqlt_lab.files import write
from hqlt_lab.registry import hand_on, included
from hqlt_lab.study.crew import warm_up
from hqlt_lab.study.record import SETTLED
from hqlt_lab.study.run import Choice, Prepared, cards, open_agenda, prepare, train, wanted
from hqlt_lab.study.run import forget as forget_cells
from hqlt_lab.study.store import Store
from hqlt_lab.study.view import View

if TYPE_CHECKING:
    import pandas

    from hqlt_lab.report.report import Report
    from hqlt_lab.study.harness import Judged
    from hqlt_lab.study.record import Record

PATIENCE = 30.0  # seconds that MLflow gets in the end to take in the rest


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
            watched = view or View()
            complete = train(study, limit, watched, courier)
            models = ask_reported(study, only, watched) if complete and experiment.evaluate else []
            for changed in cards(study.agenda) if any(model.new for model in models) else ():
                courier.tell(changed)
            report = Report.make(experiment, study.agenda.records())
            saved = report.save(store.folder, making_of(Path(file), change, runs, store))
            courier.report(saved.files)
        finally:
            untracked = courier.finish(PATIENCE)
    return Finished(
        report=report,
        complete=complete,
        untracked=untracked,
        folder=store.folder,
        undrawn=tuple(saved.troubles),
        unanswered=tuple(dict.fromkeys(trouble for model in models for trouble in model.troubles)),
    )


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


def results(file: str | Path, *, change: Sequence[str] = (), runs: str | Path = RUNS) -> "pandas.DataFrame":
    """One line per cell: arm, seed, axes, state, metrics, cost."""
    from hqlt_lab.report.frame import frame

    experiment = load_experiment(file, change)
    return frame(open_agenda(experiment, Store(runs, experiment.name)).records())
