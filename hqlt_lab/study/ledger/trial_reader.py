"""Incremental readers of Optuna trials: they yield trials that are new or may have finished since the last call.

Optuna writes the ledger but is too slow to read it: for ten thousand attempts it builds as many objects several times.
These readers return the same values as Optuna does, which the tests check.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from hqlt_lab.files import decode_json

JsonDict = Mapping[str, Any]
FINISHED_STATES = ("COMPLETE", "PRUNED", "FAIL")


class TrialRow(NamedTuple):
    """One trial, which is one attempt at a cell, as it is stored."""

    study_name: str
    trial_number: int
    state: str  # name of an Optuna TrialState
    cell_attributes: JsonDict | None  # which cell it trains, and which worker; None: not written yet
    result: JsonDict | None

    @property
    def is_finished(self) -> bool:
        return self.state in FINISHED_STATES


class TrialReader(Protocol):
    """Reader that is called repeatedly; new trials come in the order in which they were begun."""

    def read_rows(self) -> Iterator[TrialRow]: ...
    def read_generations(self) -> Iterator[Mapping[str, int]]: ...  # for each study: cell key -> generation


class PostgresReader:
    """Reads all trials with one query, where Optuna needs six per arm and always reads everything.

    Trials are begun under a lock, so their ids grow with time: new ones have an id above the last one read.
    """

    def __init__(self, execute: Callable[..., list[Any]], study_prefix: str) -> None:
        self.execute, self.study_prefix = execute, study_prefix
        self.last_trial_id, self.open_trial_ids = 0, set[int]()

    def read_rows(self) -> Iterator[TrialRow]:
        for study_name, trial_id, number, state, cell_json, result_json in self.execute(
            SELECT_TRIALS, prefix=self.study_prefix, last=self.last_trial_id, open=list(self.open_trial_ids)
        ):
            self.last_trial_id = max(self.last_trial_id, trial_id)
            name = study_name.removeprefix(self.study_prefix)
            row = TrialRow(name, number, state, parse_json(cell_json), parse_json(result_json))
            (self.open_trial_ids.discard if row.is_finished else self.open_trial_ids.add)(trial_id)
            yield row

    def read_generations(self) -> Iterator[Mapping[str, int]]:
        for (text,) in self.execute(SELECT_GENERATIONS, prefix=self.study_prefix):
            yield decode_json(text, dict)


# these tables are created by Optuna
STUDY_FILTER = "left(studies.study_name, length(cast(:prefix as text))) = :prefix"
SELECT_TRIALS = f"""
select studies.study_name, trials.trial_id, trials.number, trials.state, cell.value_json, ended.value_json
from trials join studies using (study_id)
left join trial_user_attributes cell on cell.trial_id = trials.trial_id and cell.key = 'cell'
left join trial_user_attributes ended on ended.trial_id = trials.trial_id and ended.key = 'end'
where {STUDY_FILTER} and (trials.trial_id > :last or trials.trial_id = any(cast(:open as integer[])))
order by trials.trial_id
"""
SELECT_GENERATIONS = f"""
select value_json from study_user_attributes join studies using (study_id) where key = 'generations' and {STUDY_FILTER}
"""


def parse_json(text: str | None) -> JsonDict | None:
    """Parse a value of the database; None if there is none.  Raise ValueError if it is damaged."""
    return decode_json(text, dict, allow_nan=True) if text else None
