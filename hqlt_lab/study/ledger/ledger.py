"""Ledger of a study: every attempt at every cell is an Optuna trial, in one Optuna study per crossed arm.

A cell is identified by its key, and at most one of its attempts is COMPLETE.  Only coordinators write: a single one
with a journal, or several with a database, each under a lock while it claims a cell.

    ask  ->  user attribute "cell" (which cell)  ->  training  ->  user attribute "end" (the result)  ->  tell

A crash between any two of these steps leaves a RUNNING trial.  The next coordinator closes it as interrupted, and the
cell waits again.  Superseding a cell increases its generation, which is stored as a user attribute of the Optuna study;
attempts of older generations no longer count.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property, wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import TrialState

from hqlt_lab.hashing import hash_json
from hqlt_lab.study.ledger.attempt_history import INTERRUPTED_RESULT, OPTUNA_STATE, Attempt, AttemptHistory
from hqlt_lab.study.ledger.study_store import StudyStore

EndStatus = Literal["done", "diverged", "pruned", "failed", "interrupted"]
SearchSpace = Mapping[str, BaseDistribution]  # tuned path -> distribution; empty: nothing is searched
ParamValues = Mapping[str, Any] | None
SAMPLED_STATES = (
    TrialState.RUNNING,
    TrialState.COMPLETE,
    TrialState.PRUNED,
)  # trials that count as samples of a search
P = ParamSpec("P")
T = TypeVar("T")


def retry_while_unavailable(method: Callable[Concatenate["Ledger", P], T]) -> Callable[Concatenate["Ledger", P], T]:
    """Decorate a method of `Ledger` to be repeated while the database cannot be reached."""

    @wraps(method)
    def call_with_retry(self: "Ledger", *args: P.args, **kwargs: P.kwargs) -> T:
        return self.backend.call_with_retry(lambda: method(self, *args, **kwargs))

    return call_with_retry


class Ledger(AttemptHistory):
    """The history of attempts, with methods that write; these require an open session of the store."""

    def __init__(
        self, store: StudyStore, direction: Literal["maximize", "minimize"] = "maximize", pruner: Any = None
    ) -> None:
        super().__init__(store)
        self.direction, self.pruner = direction, pruner or optuna.pruners.NopPruner()
        self.optuna_studies: dict[str, optuna.Study] = {}  # studies opened for writing, by name
        self.active_trials: dict[Attempt, optuna.Trial] = {}  # trials of the attempts that this process is running

    @cached_property
    def storage(self) -> Any:
        """Optuna's storage, opened when it is first needed."""
        return self.backend.open_storage()

    @contextmanager
    def claim_lock(self) -> Iterator[None]:
        """Hold the lock under which cells are claimed; inside, all claims of other workers are known."""
        with self.backend.claim_lock() as others_wrote:
            if others_wrote:
                self.refresh()
            yield

    def open_study(self, name: str) -> optuna.Study:
        """Return an Optuna study by name, created if it does not exist."""
        if name not in self.optuna_studies:
            self.optuna_studies[name] = optuna.create_study(
                study_name=self.backend.study_prefix + name,
                storage=self.storage,
                direction=self.direction,
                pruner=self.pruner,
                load_if_exists=True,
            )
            self.study_names.setdefault(name)
        return self.optuna_studies[name]

    @retry_while_unavailable
    def close_orphans(self) -> set[str]:
        """Close the open trials of dead workers as interrupted, and return the keys of cells that wait again.

        In a journal these are all open trials, because this process is its only writer.  The claim lock is held,
        so a trial without the attribute "cell" was left by a crash and is closed too.
        """
        reopened_keys = set[str]()
        for name in dict.fromkeys(study_name for study_name, _ in sorted(self.open_trials)):
            study = self.open_study(name)
            for trial in study.get_trials(deepcopy=False, states=(TrialState.WAITING, TrialState.RUNNING)):
                cell_attributes = trial.user_attrs.get("cell")
                if cell_attributes and self.backend.is_shared and self.is_worker_alive(cell_attributes["worker_id"]):
                    continue
                self.fail_trial(study, trial)
                self.open_trials.discard((name, trial.number))
                if cell_attributes:
                    attempts = self.attempts_by_key[cell_attributes["key"]]
                    attempts[name, trial.number] = replace(attempts[name, trial.number], result=INTERRUPTED_RESULT)
                    reopened_keys.add(cell_attributes["key"])
        return reopened_keys

    def fail_trial(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        """Finish a trial without a result."""
        # a trial that was enqueued and never begun has to be started before it can be finished
        number = study.ask().number if trial.state == TrialState.WAITING else trial.number
        with suppress(optuna.exceptions.UpdateFinishedTrialError):  # its worker has finished it in the meantime
            study.tell(number, state=TrialState.FAIL, skip_if_finished=True)

    @retry_while_unavailable
    def ask_trial(self, study_name: str, search_space: SearchSpace, params: ParamValues = None) -> optuna.Trial:
        """Return a new trial with the given parameters; with None, the sampler proposes a new point."""
        study = self.open_study(study_name)
        for trial in study.get_trials(deepcopy=False, states=(TrialState.WAITING,)) if search_space else ():
            self.fail_trial(study, trial)  # left by a crash; `ask` would return it instead of a new one
        if search_space and params:
            study.enqueue_trial(dict(params))
        elif search_space:
            study.sampler = make_sampler(study_name, len(study.get_trials(deepcopy=False, states=SAMPLED_STATES)))
        return study.ask(dict(search_space))

    @retry_while_unavailable
    def begin_attempt(self, study_name: str, trial: optuna.Trial, cell_attributes: Mapping[str, Any]) -> Attempt:
        """Record which cell a trial is an attempt at."""
        attributes = {**cell_attributes, "values": trial.params, "worker_id": self.backend.worker_id}
        attributes["generation"] = self.generations.get(cell_attributes["key"], 0)
        trial.set_user_attr("cell", attributes)
        attempt = Attempt(study_name, trial.number, cell_attributes["key"], attributes)
        self.active_trials[attempt] = trial
        self.update_attempt(attempt)
        return attempt

    @retry_while_unavailable
    def finish_attempt(
        self, attempt: Attempt, status: EndStatus, value: float | None = None, **details: Any
    ) -> Attempt:
        """Record the result of an attempt: first as the attribute "end", then by finishing the Optuna trial.

        If this process missed its heartbeats for the whole grace period, another worker has closed the trial.  The
        attempt then counts as interrupted, the cell waits again, and the next attempt reads the result from the cell's
        folder.
        """
        trial, study = self.active_trials[attempt], self.open_study(attempt.study_name)
        result = {"status": status, **details}
        state = TrialState[OPTUNA_STATE.get(status, "FAIL")]
        # finished by an earlier call whose reply was lost, or closed by another worker
        with suppress(optuna.exceptions.UpdateFinishedTrialError):
            trial.set_user_attr("end", result)
        trial_value, is_accepted = value if state == TrialState.COMPLETE else None, False
        with suppress(optuna.exceptions.UpdateFinishedTrialError):  # closed since Optuna checked its state
            is_accepted = study.tell(trial, trial_value, state=state, skip_if_finished=True).state == state
        del self.active_trials[attempt]
        finished = replace(attempt, result=result if is_accepted else INTERRUPTED_RESULT)
        self.update_attempt(finished)
        return finished

    @retry_while_unavailable
    def report_values(self, attempt: Attempt, values_by_step: Mapping[int, float]) -> None:
        """Report validation values to Optuna's pruner, by step."""
        with suppress(optuna.exceptions.UpdateFinishedTrialError):  # another worker declared this one dead
            for step, value in values_by_step.items():
                self.active_trials[attempt].report(value, step)

    @retry_while_unavailable
    def should_prune(self, attempt: Attempt) -> bool:
        """Return whether Optuna's pruner would stop this attempt at the step reported last."""
        return bool(self.active_trials[attempt].should_prune())

    def supersede_cells(self, keys: Iterable[str]) -> None:
        """Start a new generation of these cells, so that their attempts so far no longer count."""
        generations_by_study: dict[str, dict[str, int]] = {}
        for key in keys:
            if attempts := self.get_attempts(key):
                self.generations[key] = attempts[-1].generation + 1
                generations_by_study.setdefault(attempts[-1].study_name, {})[key] = self.generations[key]
        for name, generations in generations_by_study.items():
            study = self.open_study(name)
            study.set_user_attr("generations", study.user_attrs.get("generations", {}) | generations)


def make_sampler(study_name: str, num_trials: int) -> optuna.samplers.BaseSampler:
    """Return a TPE sampler whose next point depends on the trials so far, not on when the study was interrupted."""
    seed = int(hash_json([study_name, num_trials]), 16) % 2**32
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=4, constant_liar=True)
