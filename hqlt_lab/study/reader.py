"""Reading a ledger: every attempt that is new, or may have ended, since the last look.

Optuna writes it, and is too slow to read it by: of ten thousand attempts it makes as many objects, several times over.
What is read here is what Optuna would say; the tests hold both side by side.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

Json = Mapping[str, Any]
OVER = ("COMPLETE", "PRUNED", "FAIL")


class Line(NamedTuple):
    """An attempt as it is written down."""

    study: str
    number: int
    state: str  # in Optuna's words
    cell: Json | None  # which cell it is at, and who is; None: it was not said yet
    end: Json | None  # what came of it

    @property
    def over(self) -> bool:
        return self.state in OVER


class Reader(Protocol):
    """One who looks again and again; attempts that are new come in the order in which they were begun."""

    def lines(self) -> Iterator[Line]: ...
    def forgotten(self) -> Iterator[Mapping[str, int]]: ...  # of each study: key -> generation


class DatabaseReader:
    """By one question, however many cells and arms there are: Optuna asks six for every arm, and reads all it keeps.

    Attempts are begun under a lock, so that their numbers grow with time: what is new is behind the last that was seen.
    """

    def __init__(self, ask: Callable[..., list[Any]], prefix: str) -> None:
        self.ask, self.prefix = ask, prefix
        self.last, self.open = 0, set[int]()

    def lines(self) -> Iterator[Line]:
        for name, trial, number, state, cell, end in self.ask(
            LINES, prefix=self.prefix, last=self.last, open=list(self.open)
        ):
            self.last = max(self.last, trial)
            line = Line(name.removeprefix(self.prefix), number, state, parsed(cell), parsed(end))
            (self.open.discard if line.over else self.open.add)(trial)
            yield line

    def forgotten(self) -> Iterator[Mapping[str, int]]:
        return (json.loads(told) for (told,) in self.ask(FORGOTTEN, prefix=self.prefix))


# the tables are Optuna's
OURS = "left(studies.study_name, length(cast(:prefix as text))) = :prefix"
LINES = f"""
select studies.study_name, trials.trial_id, trials.number, trials.state, cell.value_json, ended.value_json
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
