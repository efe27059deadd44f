"""Read-only history of all attempts at all cells of a study.

An attempt's result counts only once its Optuna trial is finished.  A result without a finished trial was left by a
crashed process and is ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hqlt_lab.errors import StoreError
from hqlt_lab.experiment.arm_title import ArmTitle
from hqlt_lab.files import NUMBER, check_numbers, check_types
from hqlt_lab.study.ledger.study_store import StudyStore
from hqlt_lab.study.ledger.trial_reader import TrialReader, TrialRow

INTERRUPTED_RESULT: Mapping[str, Any] = {"status": "interrupted"}
CELL_ATTRIBUTE_TYPES: Mapping[str, tuple[type, ...]] = {
    "key": (str,), "arm": (dict,), "seed": (int,), "point": (dict,), "is_reported": (bool,), "code": (dict,),
    "trained_with": (dict,), "worker_id": (str,), "generation": (int,),
}  # fmt: skip
REQUIRED_CELL_ATTRIBUTES = ("key", "arm", "seed", "point", "is_reported", "code")
RESULT_TYPES: Mapping[str, tuple[type, ...]] = {
    "status": (str,), "why": (str,), "step": (int,), "metrics": (dict,), "errors": (dict,), "seconds": NUMBER,
    "tokens_per_second": NUMBER, "parameters": (int,), "state_bytes": (int,), "flops_per_token": NUMBER,
    "repeatable": (bool, type(None)), "permanent": (bool,),
}  # fmt: skip
DAMAGE_REMEDY = (
    "Move the ledger away and run the study again: finished cells are restored from their folders, the others resume "
    "from their checkpoints."
)
OPTUNA_STATE = {"done": "COMPLETE", "diverged": "PRUNED", "pruned": "PRUNED"}  # every other status is FAIL


@dataclass(frozen=True, eq=False)
class Attempt:
    """One attempt to train a cell."""

    study_name: str
    trial_number: int
    key: str
    # user attribute "cell", written when the attempt begins: key, arm, seed, point, generation, code, worker_id, ...
    cell_attributes: Mapping[str, Any]
    result: Mapping[str, Any] = field(default_factory=dict)  # status, why, and the outcome; empty while it runs

    @property
    def status(self) -> str:
        return self.result.get("status", "running")

    @property
    def generation(self) -> int:
        return self.cell_attributes.get("generation", 0)

    @property
    def code_hashes(self) -> Mapping[str, str]:
        """Hashes of all sources that the result depends on, including those of earlier attempts that it resumed.

        `cell_attributes["code"]` has the sources of this attempt alone.
        """
        return self.cell_attributes.get("trained_with", self.cell_attributes["code"])


class AttemptHistory:
    """All attempts that are recorded in one store, updated by reading what is new."""

    def __init__(self, store: StudyStore) -> None:
        self.store, self.backend = store, store.backend
        # cell key -> (study name, trial number) -> attempt, in the order in which attempts were begun
        self.attempts_by_key: dict[str, dict[tuple[str, int], Attempt]] = {}
        self.study_names: dict[str, None] = {}  # of all studies, in the order of their first attempts
        self.open_trials: set[tuple[str, int]] = set()  # unfinished trials of all workers
        self.generations = store.find_generations()
        self.reader: TrialReader | None = None
        self.is_worker_alive = self.backend.liveness_check()
        self.unprocessed_keys: set[str] = set()  # cells changed by other workers, not yet handled by `PeerMonitor`
        self.backend.call_with_retry(self.read_new_rows)
        self.backend.call_with_retry(self.read_generations)

    def read_new_rows(self) -> set[str]:
        """Read everything that was written since the last call, and return the keys of cells that changed.

        Reading writes nothing, so it needs no lock and cannot make a torn journal worse.
        """
        if self.reader is None and self.backend.exists:
            self.reader = self.backend.open_reader()
        try:
            return {key for row in (self.reader.read_rows() if self.reader else ()) if (key := self.apply_row(row))}
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise self.damage_error(error) from error

    def damage_error(self, error: Exception) -> StoreError:
        """Return the error for an entry of the ledger that the lab cannot have written."""
        return StoreError(
            f"{self.store.folder}: an entry of its ledger is damaged ({type(error).__name__}: {error}). {DAMAGE_REMEDY}"
        )

    def apply_row(self, row: TrialRow) -> str | None:
        """Update the history with one trial, and return the key of its cell if anything changed."""
        trial_id = (row.study_name, row.trial_number)
        self.study_names.setdefault(row.study_name)
        (self.open_trials.discard if row.is_finished else self.open_trials.add)(trial_id)
        if row.cell_attributes is None:
            return None
        check_row(row)
        attempt = self.attempts_by_key.get(row.cell_attributes["key"], {}).get(trial_id)
        if attempt is not None and (attempt.result or not row.is_finished):
            return None
        self.update_attempt(Attempt(*trial_id, row.cell_attributes["key"], row.cell_attributes, effective_result(row)))
        return str(row.cell_attributes["key"])

    def read_generations(self) -> None:
        """Read the current generation of every cell that was superseded."""
        try:
            for study_generations in self.reader.read_generations() if self.reader else ():
                check_types({"generations": study_generations}, {"generations": (dict,)})
                check_types(study_generations, dict.fromkeys(study_generations, (int,)))
                for key, generation in study_generations.items():
                    self.generations[key] = max(generation, self.generations.get(key, 0))
        except (ValueError, TypeError) as error:
            raise self.damage_error(error) from error

    def refresh(self) -> None:
        """Read what other workers wrote, and which of them are still alive."""
        self.is_worker_alive = self.backend.liveness_check()
        self.unprocessed_keys |= self.backend.call_with_retry(self.read_new_rows)

    def update_attempt(self, attempt: Attempt) -> None:
        """Store the newest state of an attempt."""
        self.attempts_by_key.setdefault(attempt.key, {})[attempt.study_name, attempt.trial_number] = attempt

    def get_attempts(self, key: str, generation: int | None = None) -> list[Attempt]:
        """Return the attempts at a cell in its current generation, or in another one, oldest first.

        The order is that of the ledger and not of timestamps, because the clocks of machines differ.
        """
        generation = self.generations.get(key, 0) if generation is None else generation
        return [attempt for attempt in self.attempts_by_key.get(key, {}).values() if attempt.generation == generation]

    def has_orphans(self) -> bool:
        """Return whether a running attempt belongs to a worker that is dead."""
        running = (
            attempt for attempts in self.attempts_by_key.values() for attempt in attempts.values() if not attempt.result
        )
        return any(not self.is_worker_alive(attempt.cell_attributes["worker_id"]) for attempt in running)


def check_row(row: TrialRow) -> None:
    """Raise ValueError if a field of an attempt has a value that the lab does not write, such as a text as metric."""
    assert row.cell_attributes is not None
    check_types(row.cell_attributes, CELL_ATTRIBUTE_TYPES)
    if missing := [name for name in REQUIRED_CELL_ATTRIBUTES if name not in row.cell_attributes]:
        raise ValueError(f"{missing[0]} is missing")
    ArmTitle.from_dict(row.cell_attributes["arm"])
    for name in ("code", "trained_with"):
        hashes = row.cell_attributes.get(name, {})
        check_types(hashes, dict.fromkeys(hashes, (str,)))
    if row.result is not None:
        check_types(row.result, RESULT_TYPES)
        for name in ("metrics", "errors"):
            check_numbers(row.result.get(name, {}))


def effective_result(row: TrialRow) -> Mapping[str, Any]:
    """Return the result of a trial: empty while it is open, interrupted if its status contradicts Optuna's state."""
    if not row.is_finished:
        return {}
    result = row.result or INTERRUPTED_RESULT
    return result if OPTUNA_STATE.get(result["status"], "FAIL") == row.state else INTERRUPTED_RESULT
