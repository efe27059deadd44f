"""Every attempt at every cell, in Optuna's hands: one study per crossed arm, one trial per attempt.

A cell is named by its key.  Of all its attempts at most one is COMPLETE, and only the coordinator writes.

    ask  ->  user attribute "cell" (which it is)  ->  training  ->  user attribute "end" (what came of it)  ->  tell

A crash between any two of these leaves a RUNNING trial; the next coordinator closes it as interrupted, and the cell
waits again.  Forgetting a cell raises its generation, a number that the study keeps: older attempts are superseded.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import TrialState

from hqlt_lab.experiment.cell import digest
from hqlt_lab.study.store import Store

End = Literal["done", "diverged", "pruned", "failed", "interrupted"]
Search = Mapping[str, BaseDistribution]  # searched path -> where its values lie; empty: nothing is searched
Values = Mapping[str, Any] | None
INTERRUPTED: Mapping[str, Any] = {"status": "interrupted"}
TOLD = {"done": TrialState.COMPLETE, "diverged": TrialState.PRUNED, "pruned": TrialState.PRUNED}


@dataclass(frozen=True, eq=False)
class Attempt:
    """One try at a cell."""

    study: str
    number: int
    key: str
    cell: Mapping[str, Any]  # arm, seed, point, generation, code: written when it began
    end: Mapping[str, Any] = field(default_factory=dict)  # status, why, and the outcome; empty while it runs
    since: float = 0.0  # when it began

    @property
    def status(self) -> str:
        return self.end.get("status", "running")

    @property
    def generation(self) -> int:
        return self.cell.get("generation", 0)


class Ledger:
    """What is known of the cells of one store.  Only who owns the store may call what writes."""

    def __init__(
        self, store: Store, direction: Literal["maximize", "minimize"] = "maximize", pruner: Any = None
    ) -> None:
        self.store, self.direction, self.pruner = store, direction, pruner or optuna.pruners.NopPruner()
        self.studies: dict[str, optuna.Study] = {}
        self.trials: dict[Attempt, optuna.Trial] = {}  # those under way
        self.attempts: dict[str, dict[tuple[str, int], Attempt]] = {}  # by key, oldest first
        self.generations: dict[str, int] = {}
        self.storage = store.storage() if store.journal.exists() else None
        for name in optuna.get_all_study_names(self.storage) if self.storage else ():
            self.load(name)

    def load(self, name: str) -> None:
        """Read what a study holds.  Reading writes nothing: it needs no lock, and cannot harm a torn journal."""
        assert self.storage is not None
        study = self.studies[name] = optuna.load_study(study_name=name, storage=self.storage, pruner=self.pruner)
        for key, generation in study.user_attrs.get("generations", {}).items():
            self.generations[key] = max(generation, self.generations.get(key, 0))
        for trial in study.get_trials(deepcopy=False):
            if "cell" in trial.user_attrs:
                cell = trial.user_attrs["cell"]
                self.note(Attempt(name, trial.number, cell["key"], cell, end_of(trial), began(trial)))

    def study(self, name: str) -> optuna.Study:
        """A study by its name, made if it is not there yet."""
        if self.storage is None:
            self.storage = self.store.storage()
        if name not in self.studies:
            self.studies[name] = optuna.create_study(
                study_name=name, storage=self.storage, direction=self.direction, pruner=self.pruner
            )
        return self.studies[name]

    def note(self, attempt: Attempt) -> None:
        """Keep the newest state of an attempt."""
        self.attempts.setdefault(attempt.key, {})[attempt.study, attempt.number] = attempt

    def of(self, key: str, generation: int | None = None) -> list[Attempt]:
        """The attempts at a cell that still count, or those of another generation, oldest first."""
        generation = self.generations.get(key, 0) if generation is None else generation
        tries = [one for one in self.attempts.get(key, {}).values() if one.generation == generation]
        return sorted(tries, key=lambda one: one.since)  # an arm that was renamed has attempts in several studies

    def recover(self) -> None:
        """Close what a dead coordinator left open.  Nobody trains now: we own the store."""
        for study in self.studies.values():
            for _ in study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
                study.ask()  # it was queued for a point of which nothing else was written yet
            for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
                study.tell(trial.number, state=TrialState.FAIL)
        for tries in self.attempts.values():
            tries |= {place: replace(one, end=INTERRUPTED) for place, one in tries.items() if not one.end}

    def ask(self, study: str, search: Search, values: Values = None) -> optuna.Trial:
        """A new trial.  `values` are those of the searched point, None: the sampler finds a new one."""
        book = self.study(study)
        if search and values:
            book.enqueue_trial(dict(values))
        elif search:
            book.sampler = sampler(study, len(book.get_trials(deepcopy=False)))
        return book.ask(dict(search))

    def begin(self, study: str, trial: optuna.Trial, cell: Mapping[str, Any]) -> Attempt:
        """Write down which cell the trial is an attempt at."""
        told = {**cell, "values": trial.params, "generation": self.generations.get(cell["key"], 0)}
        trial.set_user_attr("cell", told)
        attempt = Attempt(study, trial.number, cell["key"], told, since=began(trial))
        self.trials[attempt] = trial
        self.note(attempt)
        return attempt

    def finish(self, attempt: Attempt, status: End, value: float | None = None, **told: Any) -> Attempt:
        """What came of an attempt: first in words, then in Optuna's terms."""
        trial, end = self.trials.pop(attempt), {"status": status, **told}
        trial.set_user_attr("end", end)
        state = TOLD.get(status, TrialState.FAIL)
        self.studies[attempt.study].tell(trial, value if state == TrialState.COMPLETE else None, state=state)
        ended = replace(attempt, end=end)
        self.note(ended)
        return ended

    def hopeless(self, attempt: Attempt, step: int, value: float) -> bool:
        """Take in a validation; whether the arm's other cells were better at that step."""
        trial = self.trials[attempt]
        trial.report(value, step)
        return trial.should_prune()

    def forget(self, keys: Iterable[str]) -> None:
        """What was tried so far is superseded."""
        by_study: dict[str, dict[str, int]] = {}
        for key in keys:
            if tries := self.of(key):
                self.generations[key] = tries[-1].generation + 1
                by_study.setdefault(tries[-1].study, {})[key] = self.generations[key]
        for name, raised in by_study.items():
            study = self.study(name)
            study.set_user_attr("generations", study.user_attrs.get("generations", {}) | raised)


def began(trial: optuna.Trial | optuna.trial.FrozenTrial) -> float:
    """When a trial was asked for, in seconds."""
    return trial.datetime_start.timestamp() if trial.datetime_start else 0.0


def end_of(trial: optuna.trial.FrozenTrial) -> Mapping[str, Any]:
    """How an attempt ended; words that Optuna was not told in time do not count."""
    if not trial.state.is_finished():
        return {}
    end = trial.user_attrs.get("end", INTERRUPTED)
    return end if TOLD.get(end["status"], TrialState.FAIL) == trial.state else INTERRUPTED


def sampler(study: str, trials: int) -> optuna.samplers.BaseSampler:
    """TPE whose next point depends on the trials so far alone, not on when it was started."""
    seed = int(digest([study, trials]), 16) % 2**32
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=4, constant_liar=True)
