"""The others who work on a study that is kept in a database: what they begin, end, and leave open when they die.

In a journal there are none, and nothing here does anything.
"""

import time
from collections.abc import Callable, Container
from contextlib import suppress

from hqlt_lab.study.agenda import Agenda
from hqlt_lab.study.database import LostTurn
from hqlt_lab.study.place import Place
from hqlt_lab.study.view import View

AROUND = 2.0  # seconds between two looks
UNDER_WAY = ("waiting", "running")


class Others:
    """Looked at now and then, between our own cells."""

    def __init__(self, agenda: Agenda, view: View) -> None:
        self.agenda, self.ledger, self.view = agenda, agenda.ledger, view
        self.looked = time.monotonic()
        self.shown: set[str] = set()  # cells that they have under way
        self.ledger.unseen.clear()  # what was written before we began is counted already

    def have(self, wanted: Callable[[Place], bool]) -> bool:
        """Whether cells are under way elsewhere, or wait for someone with room: whoever has them may die."""
        if not self.ledger.book.shared:
            return False
        return any(wanted(place) and self.agenda.stands(place) in UNDER_WAY for place in self.agenda.places())

    def look(self, ours: Container[str], at_once: bool = False) -> None:
        """What they have begun and ended, and what the dead among them left open."""
        if not self.ledger.book.shared or (time.monotonic() - self.looked < AROUND and not at_once):
            return
        self.ledger.refresh()
        if self.ledger.orphans():
            with suppress(LostTurn), self.ledger.claiming():
                self.ledger.unseen |= self.ledger.recover()
        news, self.ledger.unseen = self.ledger.unseen, set()
        for place in self.agenda.places() if news else ():
            if place.key in news and place.key not in ours and not self.was_ours(place):
                self.show(place)
        self.looked = time.monotonic()

    def was_ours(self, place: Place) -> bool:
        """Whether what is known of a cell last is what we ourselves have done, and shown."""
        tries = self.ledger.of(place.key)
        return bool(tries) and tries[-1].cell["who"] == self.ledger.book.who

    def show(self, place: Place) -> None:
        """How a cell of theirs stands now."""
        record = self.agenda.record(place)
        if place.key not in self.shown:
            self.view.started(record, self.agenda.example(place))
        if record.state == "running":
            self.shown.add(place.key)
        else:
            self.shown.discard(place.key)
            self.view.settled(record)
