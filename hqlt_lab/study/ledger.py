"""Every attempt at every cell, in Optuna's hands: one study per crossed arm, one trial per attempt.

A cell is named by its key.  Of all its attempts at most one is COMPLETE, and only coordinators write: one, or several
where the store is a database, each under a lock while it begins a cell.

    ask  ->  user attribute "cell" (which it is)  ->  training  ->  user attribute "end" (what came of it)  ->  tell

A crash between any two of these leaves a RUNNING trial; a coordinator that sees it closes it as interrupted, and the
cell waits again.  Forgetting a cell raises its generation, a number that the study keeps: older attempts are
superseded.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property, wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import TrialState

from hqlt_lab.experiment.cell import digest
from hqlt_lab.study.attempts import INTERRUPTED, TOLD, Attempt, Attempts
from hqlt_lab.study.store import Store

End = Literal["done", "diverged", "pruned", "failed", "interrupted"]
Search = Mapping[str, BaseDistribution]  # searched path -> where its values lie; empty: nothing is searched
Values = Mapping[str, Any] | None
SOMETHING = (TrialState.RUNNING, TrialState.COMPLETE, TrialState.PRUNED)  # may come, or came, of such a trial
P = ParamSpec("P")
T = TypeVar("T")


def patient(method: Callable[Concatenate["Ledger", P], T]) -> Callable[Concatenate["Ledger", P], T]:
    """While the store is away, what is asked of it is asked again."""

    @wraps(method)
    def asked(self: "Ledger", *given: P.args, **named: P.kwargs) -> T:
        return self.book.patiently(lambda: method(self, *given, **named))

    return asked


class Ledger(Attempts):
    """The same, and what writes, which only who owns the store may call."""

    def __init__(
        self, store: Store, direction: Literal["maximize", "minimize"] = "maximize", pruner: Any = None
    ) -> None:
        super().__init__(store)
        self.direction, self.pruner = direction, pruner or optuna.pruners.NopPruner()
        self.studies: dict[str, optuna.Study] = {}  # those that we have written into
        self.trials: dict[Attempt, optuna.Trial] = {}  # those under way

    @cached_property
    def storage(self) -> Any:
        """Optuna's view of the book, opened when it is first needed."""
        return self.book.storage()

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """Begin cells that nobody else begins: in here, all that was begun is known."""
        with self.book.claiming() as others_wrote:
            if others_wrote:
                self.refresh()
            yield

    def study(self, name: str) -> optuna.Study:
        """A study by its name, made if it is not there yet."""
        if name not in self.studies:
            self.studies[name] = optuna.create_study(
                study_name=self.book.prefix + name,
                storage=self.storage,
                direction=self.direction,
                pruner=self.pruner,
                load_if_exists=True,
            )
            self.names.setdefault(name)
        return self.studies[name]

    @patient
    def recover(self) -> set[str]:
        """Close what the dead left open: everything in a file, which we own; what is not of the living in a database.

        Nobody begins a cell meanwhile, so a trial of which not even the cell was written is nobody's.  Told are the
        keys of cells that wait again.
        """
        again = set[str]()
        for name in dict.fromkeys(study for study, _ in sorted(self.open)):
            study = self.study(name)
            for trial in study.get_trials(deepcopy=False, states=(TrialState.WAITING, TrialState.RUNNING)):
                cell = trial.user_attrs.get("cell")
                if cell and self.book.shared and self.alive(cell["who"]):
                    continue
                self.close(study, trial)
                self.open.discard((name, trial.number))
                if cell:
                    tries = self.attempts[cell["key"]]
                    tries[name, trial.number] = replace(tries[name, trial.number], end=INTERRUPTED)
                    again.add(cell["key"])
        return again

    def close(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        """Nothing came of a trial."""
        number = study.ask().number if trial.state == TrialState.WAITING else trial.number  # queued, and never begun
        with suppress(optuna.exceptions.UpdateFinishedTrialError):  # whoever began it is back, and was faster
            study.tell(number, state=TrialState.FAIL, skip_if_finished=True)

    @patient
    def ask(self, study: str, search: Search, values: Values = None) -> optuna.Trial:
        """A new trial.  `values` are those of the searched point, None: the sampler finds a new one."""
        book = self.study(study)
        for trial in book.get_trials(deepcopy=False, states=(TrialState.WAITING,)) if search else ():
            self.close(book, trial)  # it would be the next
        if search and values:
            book.enqueue_trial(dict(values))
        elif search:
            book.sampler = sampler(study, len(book.get_trials(deepcopy=False, states=SOMETHING)))
        return book.ask(dict(search))

    @patient
    def begin(self, study: str, trial: optuna.Trial, cell: Mapping[str, Any]) -> Attempt:
        """Write down which cell the trial is an attempt at."""
        told = {**cell, "values": trial.params, "who": self.book.who}
        told["generation"] = self.generations.get(cell["key"], 0)
        trial.set_user_attr("cell", told)
        attempt = Attempt(study, trial.number, cell["key"], told)
        self.trials[attempt] = trial
        self.note(attempt)
        return attempt

    @patient
    def finish(self, attempt: Attempt, status: End, value: float | None = None, **told: Any) -> Attempt:
        """What came of an attempt: first in words, then in Optuna's terms.

        Whoever was silent for too long finds it closed by another; the cell then waits again, and what was trained is
        in its folder.
        """
        trial, end, study = self.trials[attempt], {"status": status, **told}, self.study(attempt.study)
        state = TrialState[TOLD.get(status, "FAIL")]
        with suppress(optuna.exceptions.UpdateFinishedTrialError):  # told before, and the answer was lost; or closed
            trial.set_user_attr("end", end)
        result, counts = value if state == TrialState.COMPLETE else None, False
        with suppress(optuna.exceptions.UpdateFinishedTrialError):  # closed between looking and telling
            counts = study.tell(trial, result, state=state, skip_if_finished=True).state == state
        del self.trials[attempt]
        ended = replace(attempt, end=end if counts else INTERRUPTED)
        self.note(ended)
        return ended

    @patient
    def report(self, attempt: Attempt, points: Mapping[int, float]) -> None:
        """Take in validations, by their steps."""
        with suppress(optuna.exceptions.UpdateFinishedTrialError):  # closed by another, who took us for dead
            for step, value in points.items():
                self.trials[attempt].report(value, step)

    @patient
    def hopeless(self, attempt: Attempt) -> bool:
        """Whether the arm's other cells were better at the step that was reported last."""
        return bool(self.trials[attempt].should_prune())

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


def sampler(study: str, trials: int) -> optuna.samplers.BaseSampler:
    """TPE whose next point depends on what came of the trials so far, not on when it was started or interrupted."""
    seed = int(digest([study, trials]), 16) % 2**32
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=4, constant_liar=True)
