"""Every attempt at every cell, as the book of a study has it: read, and never written.

What came of an attempt counts once Optuna was told that it is over; words without that are those of one who died.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hqlt_lab.errors import StoreError
from hqlt_lab.study.reader import Line, Reader
from hqlt_lab.study.store import Store

INTERRUPTED: Mapping[str, Any] = {"status": "interrupted"}
TOLD = {"done": "COMPLETE", "diverged": "PRUNED", "pruned": "PRUNED"}  # in Optuna's words; all else is FAIL


@dataclass(frozen=True, eq=False)
class Attempt:
    """One try at a cell."""

    study: str
    number: int
    key: str
    cell: Mapping[str, Any]  # arm, seed, point, generation, code: written when it began
    end: Mapping[str, Any] = field(default_factory=dict)  # status, why, and the outcome; empty while it runs

    @property
    def status(self) -> str:
        return self.end.get("status", "running")

    @property
    def generation(self) -> int:
        return self.cell.get("generation", 0)

    @property
    def made_by(self) -> Mapping[str, str]:
        """The sources that its result stands on; `code` are those of the attempt itself."""
        return self.cell.get("made_by", self.cell["code"])


class Attempts:
    """What is known of the cells of one store."""

    def __init__(self, store: Store) -> None:
        self.store, self.book = store, store.book
        self.attempts: dict[str, dict[tuple[str, int], Attempt]] = {}  # by key, in the order they were begun in
        self.names: dict[str, None] = {}  # of all studies, in the order of their first attempts
        self.open: set[tuple[str, int]] = set()  # attempts that nobody has ended, ours or not
        self.generations = store.generations()
        self.reader: Reader | None = None
        self.alive = self.book.living()
        self.unseen: set[str] = set()  # keys of cells of which others wrote, until somebody looks at them
        self.book.patiently(self.read)
        self.book.patiently(self.read_forgotten)

    def read(self) -> set[str]:
        """Take in all that was written; the keys of cells of which there is news.

        Reading writes nothing: it needs no lock, and cannot harm a torn journal.
        """
        if self.reader is None and self.book.exists:
            self.reader = self.book.reader()
        try:
            return {key for line in (self.reader.lines() if self.reader else ()) if (key := self.take_in(line))}
        except (LookupError, TypeError, AttributeError) as error:
            raise StoreError(
                f"{self.store.folder}: an entry of its ledger is damaged ({type(error).__name__}: {error})."
            ) from error

    def take_in(self, line: Line) -> str | None:
        """The key of its cell, if it says anything new."""
        place, over = (line.study, line.number), line.over
        self.names.setdefault(line.study)
        (self.open.discard if over else self.open.add)(place)
        known = self.attempts.get(line.cell["key"], {}).get(place) if line.cell else None
        if line.cell is None or (known is not None and (known.end or not over)):
            return None
        self.note(Attempt(*place, line.cell["key"], line.cell, end_of(line)))
        return str(line.cell["key"])

    def read_forgotten(self) -> None:
        """Which cells are superseded."""
        for raised in self.reader.forgotten() if self.reader else ():
            for key, generation in raised.items():
                self.generations[key] = max(generation, self.generations.get(key, 0))

    def refresh(self) -> None:
        """What others wrote, and who of them is still there."""
        self.alive = self.book.living()
        self.unseen |= self.book.patiently(self.read)

    def note(self, attempt: Attempt) -> None:
        """Keep the newest state of an attempt."""
        self.attempts.setdefault(attempt.key, {})[attempt.study, attempt.number] = attempt

    def of(self, key: str, generation: int | None = None) -> list[Attempt]:
        """The attempts at a cell that still count, or those of another generation, oldest first.

        That is the order of the book, never of a clock: those of machines differ, and are set back.
        """
        generation = self.generations.get(key, 0) if generation is None else generation
        return [one for one in self.attempts.get(key, {}).values() if one.generation == generation]

    def orphans(self) -> bool:
        """Whether an attempt is under way whose coordinator is dead."""
        under_way = (one for tries in self.attempts.values() for one in tries.values() if not one.end)
        return any(not self.alive(one.cell["who"]) for one in under_way)


def end_of(line: Line) -> Mapping[str, Any]:
    """How an attempt ended; words that Optuna was not told in time do not count."""
    if not line.over:
        return {}
    end = line.end or INTERRUPTED
    return end if TOLD.get(end["status"], "FAIL") == line.state else INTERRUPTED
