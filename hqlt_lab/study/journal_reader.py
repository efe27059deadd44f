"""Reading Optuna's journal: one operation per line, of which five kinds say something about attempts.

    {"op_code": 0, "study_name": ...}                               a study begins; studies are numbered as they come
    {"op_code": 2, "study_id": 0, "user_attr": {...}}               something is noted of it
    {"op_code": 4, "study_id": 0, "state": ...}                     a trial begins; trials are numbered as they come
    {"op_code": 6, "trial_id": 0, "state": 1, ...}                  it is another now
    {"op_code": 8, "trial_id": 0, "user_attr": {"cell": ...}}       something is noted of it

What is written of a trial that is over does not count, as with Optuna.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from io import BytesIO
from pathlib import Path
from typing import Any

from hqlt_lab.errors import StoreError
from hqlt_lab.study.reader import OVER, Line

STATES = ("RUNNING", "COMPLETE", "PRUNED", "FAIL", "WAITING")  # as Optuna numbers them


class Op(IntEnum):
    """The kinds that matter."""

    STUDY = 0
    STUDY_NOTE = 2
    TRIAL = 4
    STATE = 6
    NOTE = 8


@dataclass(slots=True)
class Trial:
    """One attempt, as far as it was read."""

    study: int
    number: int
    state: str
    notes: dict[str, Any]


class JournalReader:
    """Each look takes in the lines that are new; half a line at the end is left for the next one."""

    def __init__(self, file: Path) -> None:
        self.file, self.offset = file, 0
        self.names: list[str] = []  # of studies
        self.notes: list[dict[str, Any]] = []  # of studies
        self.trials: list[Trial] = []
        self.count: list[int] = []  # trials of each study

    def lines(self) -> Iterator[Line]:
        """Of each trial of which there is news, how it stands."""
        with intact(self.file):
            news = dict.fromkeys(trial for told in self.operations() if (trial := self.take_in(told)) is not None)
        for one in (self.trials[number] for number in news):
            told = (one.notes.get(name) for name in ("cell", "end"))
            yield Line(self.names[one.study], one.number, one.state, *told)

    def forgotten(self) -> Iterator[Mapping[str, int]]:
        return (notes.get("generations", {}) for notes in self.notes)

    def operations(self) -> Iterator[Mapping[str, Any]]:
        """What the new lines say; of damage at the very end, the next look may see more."""
        damage: ValueError | None = None
        with self.file.open("rb") as journal:
            journal.seek(self.offset)
            news = journal.read()  # what is written meanwhile is for the next look
        for line in BytesIO(news):
            if damage:
                raise damage
            try:
                told = read_line(line)
            except ValueError as error:
                damage = error
                continue
            self.offset += len(line)
            yield told

    def take_in(self, told: Mapping[str, Any]) -> int | None:
        """The number of the trial that it is about."""
        match told["op_code"]:
            case Op.STUDY if told["study_name"] not in self.names:
                self.names.append(told["study_name"])
                self.notes.append({})
                self.count.append(0)
            case Op.STUDY_NOTE:
                self.notes[told["study_id"]] |= told["user_attr"]
            case Op.TRIAL:
                return self.begin(told)
            case Op.STATE | Op.NOTE if self.trials[told["trial_id"]].state not in OVER:
                return self.change(told)
        return None

    def begin(self, told: Mapping[str, Any]) -> int:
        """A trial more."""
        study, state = told["study_id"], STATES[told.get("state", 0)]
        notes = dict(told.get("user_attrs", {}))
        self.trials.append(Trial(study, self.count[study], state, notes))
        self.count[study] += 1
        return len(self.trials) - 1

    def change(self, told: Mapping[str, Any]) -> int:
        """What is new of a trial."""
        number: int = told["trial_id"]
        trial = self.trials[number]
        if "user_attr" in told:
            trial.notes |= told["user_attr"]
            return number
        trial.state = STATES[told["state"]]
        return number


@contextmanager
def intact(file: Path) -> Iterator[None]:
    """A line in the middle that cannot be read is told with what to do; `mend` cuts off the last."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(
            f"{file}: a line of it is damaged ({error}). Move the file away and run the study again: "
            "cells that are done are taken from their folders, the others go on from their checkpoints."
        ) from error


def read_line(line: bytes) -> Mapping[str, Any]:
    """One operation."""
    told = json.loads(line.decode()) if line.endswith(b"\n") else None
    if not isinstance(told, dict) or min(told.get("trial_id", 0), told.get("study_id", 0)) < 0:
        raise ValueError("it is no operation")
    return told
