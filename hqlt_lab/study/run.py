"""Train every cell of an experiment that is not settled yet: take the lock, open the ledger, hire, go.

Running it again is resuming: settled cells are left alone, interrupted ones go on from their checkpoint in the same
MLflow run, failed ones are tried again up to a limit, and whatever is new in the file is added.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hqlt_lab.errors import ConfigError, StoreError
from hqlt_lab.experiment.cell import Cell, digest
from hqlt_lab.experiment.experiment import Experiment
from hqlt_lab.experiment.plan import Planned, fits, select, wishes, words
from hqlt_lab.registry import build
from hqlt_lab.study.agenda import Agenda
from hqlt_lab.study.attempts import Attempts
from hqlt_lab.study.coordinator import Coordinator
from hqlt_lab.study.errand import Errand
from hqlt_lab.study.hands import Hands
from hqlt_lab.study.job import Tracker, card_of
from hqlt_lab.study.pace import Pace, Work, spent_on
from hqlt_lab.study.place import Place
from hqlt_lab.study.record import SETTLED, Record
from hqlt_lab.study.search import space
from hqlt_lab.study.standing import Standing
from hqlt_lab.study.store import Store
from hqlt_lab.study.view import View
from hqlt_lab.track.card import CellCard, State


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which cells to train now."""

    only: Sequence[str] = ()
    limit: int | None = None
    again: bool = False  # also those that are settled


def open_agenda(experiment: Experiment, store: Store) -> Agenda:
    """What the ledger says of an experiment's cells."""
    from hqlt_lab.study.ledger import Ledger

    return Agenda(experiment, Ledger(store, experiment.measure.direction, pruner(experiment)), store)


def pruner(experiment: Experiment) -> Any:
    """Cells that do worse than the median of their arm at the same step are given up, if the file says so."""
    import optuna

    if experiment.prune is None:
        return None
    return optuna.pruners.MedianPruner(
        n_startup_trials=experiment.prune.finished, n_warmup_steps=experiment.prune.after
    )


def wanted(experiment: Experiment, agenda: Agenda, only: Sequence[str]) -> Callable[[Place], bool]:
    """Whether a cell was asked for; words that nothing has are told at once."""
    if not only:
        return lambda place: True
    seeds = {*experiment.final_seeds, *(experiment.tune_seeds if agenda.search else ())}
    known = [words(arm.name, seed, arm.levels) for arm in experiment.arms for seed in sorted(seeds)]
    known += [agenda.words(place) for place in agenda.places()]
    select(known, known, only)
    wish = wishes(only)
    return lambda place: fits(agenda.words(place), wish)


def states(
    experiment: Experiment, planned: Sequence[Planned], root: str | Path, only: Sequence[str]
) -> list[tuple[str, State]]:
    """Of every cell its arm and how it stands, which is much less than what is known of it; `planned` are a grid's."""
    store = Store(root, experiment.name)
    if space(experiment.tune):
        agenda = open_agenda(experiment, store)
        wish = wanted(experiment, agenda, only)
        return [(place.arm.title, agenda.stands(place)) for place in agenda.places() if wish(place)]
    standing = Standing(Attempts(store), store, experiment.launcher.get("retries", 0))
    return [(cell.arm, standing.state(key)) for key, cell in planned]


def forget(experiment: Experiment, root: str | Path, only: Sequence[str]) -> list[Record]:
    """Mark what is known of these cells as superseded; what they were is returned."""
    store = Store(root, experiment.name)
    with store.owned():
        agenda = open_agenda(experiment, store)
        wish = wanted(experiment, agenda, only)
        with agenda.ledger.claiming():
            agenda.ledger.recover()
            return set_aside(agenda, wish)


def set_aside(agenda: Agenda, wish: Callable[[Place], bool]) -> list[Record]:
    """Raise the generation of every cell that was tried; nobody may be at one of them."""
    if others := agenda.store.others():
        raise StoreError(
            f"{agenda.store.folder}: others are at work on this study ({'; '.join(others)}). "
            "Stop them before cells are set aside."
        )
    tried = [record for place in agenda.places() if wish(place) and (record := agenda.record(place)).attempts]
    agenda.ledger.forget(record.key for record in tried)
    return tried


def cards(agenda: Agenda) -> list[CellCard]:
    """Every cell that was ever tried, for the tracker; those that were forgotten too."""
    cells = {place.key: agenda.example(place) for place in agenda.places()}
    tried = [record for record in agenda.records() if record.attempts]
    return [card_of(cells[record.key], record) for record in [*agenda.superseded(), *tried]]


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A study that is about to be trained: nothing can be wrong with what was asked any more."""

    agenda: Agenda
    wish: Callable[[Place], bool]
    waiting: list[Place]  # those that will be trained now, as far as they are known
    crew: Hands


def prepare(
    experiment: Experiment,
    store: Store,
    choice: Choice,
    joining: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Prepared:
    """Open the ledger, close what a dead coordinator left open, choose; the caller owns the store.

    Who joins a study trains here, whoever else the file has train elsewhere; those are told the environment.
    """
    agenda = open_agenda(experiment, store)
    wish = wanted(experiment, agenda, choice.only)
    launcher = build("launcher", experiment.launcher, errand=errand_of(experiment, store, choice, environment or {}))
    check_tasks(agenda.example(place) for place in agenda.places() if wish(place))
    with agenda.ledger.claiming():
        agenda.ledger.read_forgotten()  # by one who did not see us come
        agenda.ledger.recover()
        if choice.again:
            set_aside(agenda, wish)
    by_state: dict[str, list[Place]] = {"waiting": [], "running": []}
    for place in filter(wish, agenda.places()):
        by_state.setdefault(agenda.stands(place), []).append(place)
    # others may leave theirs to us, and searches lead to more
    cells = [agenda.example(place) for place in (*by_state["waiting"], *by_state["running"])]
    cells += [agenda.first[place.arm.title] for place in agenda.later() if wish(place)]
    crew = launcher.worker_crew(cells[: choice.limit]) if joining else launcher.crew(cells[: choice.limit])
    return Prepared(agenda=agenda, wish=wish, waiting=by_state["waiting"][: choice.limit], crew=crew)


def errand_of(experiment: Experiment, store: Store, choice: Choice, environment: Mapping[str, str]) -> Errand:
    """How programs elsewhere join this study."""
    return Errand(
        file=experiment.file,
        change=experiment.change,
        only=tuple(choice.only),
        runs=store.root,
        folder=store.folder,
        shared=store.book.shared,
        tell=lambda sentence: store.book.tell(sentence),
        limit=choice.limit,
        environment=environment,
    )


def check_tasks(cells: Iterable[Cell]) -> None:
    """Complain about data that are not there before anything is begun; every task once."""
    for told in {digest(cell.task): cell.task for cell in cells}.values():
        try:
            build("task", told).check_ready()
        except ConfigError as error:
            raise ConfigError(f"task.{error}") from error


def pace_of(study: Prepared, limit: int | None, records: Sequence[Record]) -> Pace:
    """What is to be trained now, and what it took before."""
    agenda = study.agenda
    waiting = {place.key: Work(place.arm.title, agenda.example(place).train.steps) for place in study.waiting}
    arms = [place.arm.title for place in agenda.later() if study.wish(place)]
    later = [Work(arm, agenda.first[arm].train.steps) for arm in arms]
    later = later if limit is None else later[: limit - len(waiting)]
    return Pace(waiting, study.crew.workers, later, spent_on(records))


def train(study: Prepared, limit: int | None, view: View, tracker: Tracker) -> bool:
    """Train what waits; whether it came to the end."""
    agenda, crew = study.agenda, study.crew
    for card in cards(agenda):
        if card.state != "running":  # whoever trains it tells of it
            tracker.tell(card)
    records = agenda.records()
    view.begin(pace_of(study, limit, records), sum(record.state in SETTLED for record in records), agenda.total)
    agenda.store.book.tell = view.away
    try:
        anything = study.waiting or agenda.store.book.shared
        return Coordinator(agenda, crew, tracker, view, study.wish, limit).work() if anything else True
    finally:
        crew.close()
