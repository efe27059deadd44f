"""Reading a ledger: every attempt that is new, or may have ended, since the last look."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.trial import FrozenTrial, TrialState

Json = Mapping[str, Any]


class Line(NamedTuple):
    """An attempt as it is written down."""

    study: str
    number: int
    state: "TrialState"
    since: float  # when it began, in seconds
    cell: Json | None  # which cell it is at, and who is; None: it was not said yet
    end: Json | None  # what came of it


class Reader(Protocol):
    """One who looks again and again."""

    def lines(self) -> Iterator[Line]: ...
    def forgotten(self) -> Iterator[Mapping[str, int]]: ...  # of each study: key -> generation


class JournalReader:
    """By Optuna's own means, which has the whole of a journal in memory."""

    def __init__(self, storage: Any) -> None:
        self.storage = storage

    def studies(self) -> "Iterator[Study]":
        import optuna

        for name in optuna.get_all_study_names(self.storage):
            yield optuna.load_study(study_name=name, storage=self.storage)

    def lines(self) -> Iterator[Line]:
        for study in self.studies():
            for trial in study.get_trials(deepcopy=False):
                told, since = trial.user_attrs, began(trial)
                yield Line(study.study_name, trial.number, trial.state, since, told.get("cell"), told.get("end"))

    def forgotten(self) -> Iterator[Mapping[str, int]]:
        return (study.user_attrs.get("generations", {}) for study in self.studies())


class DatabaseReader:
    """By one question, however many cells and arms there are: Optuna asks six for every arm, and reads all it keeps.

    Attempts are begun under a lock, so that their numbers grow with time: what is new is behind the last that was seen.
    """

    def __init__(self, ask: Callable[..., list[Any]], prefix: str) -> None:
        self.ask, self.prefix = ask, prefix
        self.last, self.open = 0, set[int]()

    def lines(self) -> Iterator[Line]:
        from optuna.trial import TrialState

        for name, trial, number, state, since, cell, end in self.ask(
            LINES, prefix=self.prefix, last=self.last, open=list(self.open)
        ):
            told = TrialState[state]
            self.last = max(self.last, trial)
            (self.open.discard if told.is_finished() else self.open.add)(trial)
            moment = since.timestamp() if since else 0.0
            yield Line(name.removeprefix(self.prefix), number, told, moment, parsed(cell), parsed(end))

    def forgotten(self) -> Iterator[Mapping[str, int]]:
        return (json.loads(told) for (told,) in self.ask(FORGOTTEN, prefix=self.prefix))


# the tables are Optuna's
OURS = "left(studies.study_name, length(cast(:prefix as text))) = :prefix"
LINES = f"""
select studies.study_name, trials.trial_id, trials.number, trials.state, trials.datetime_start,
    cell.value_json, ended.value_json
from trials join studies using (study_id)
left join trial_user_attributes cell on cell.trial_id = trials.trial_id and cell.key = 'cell'
left join trial_user_attributes ended on ended.trial_id = trials.trial_id and ended.key = 'end'
where {OURS} and (trials.trial_id > :last or trials.trial_id = any(cast(:open as integer[])))
order by trials.trial_id
"""
FORGOTTEN = f"""
select value_json from study_user_attributes join studies using (study_id) where key = 'generations' and {OURS}
"""


def parsed(told: str | None) -> Json | None:
    """JSON, if there is any."""
    return json.loads(told) if told else None


def began(trial: "Trial | FrozenTrial") -> float:
    """When a trial was asked for, in seconds."""
    return trial.datetime_start.timestamp() if trial.datetime_start else 0.0
