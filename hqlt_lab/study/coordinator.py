"""One who writes the ledger: hands cells to the crew, writes down what comes of them, and stops cleanly.

    hand out  ->  listen  ->  settle  ->  hand out ...

Where the ledger is shared, others do the same: a cell is begun under a lock, and what others begin and end is looked at
now and then.  It is over when nothing is left to do for anybody.

Ctrl-C or SIGTERM: nothing new begins, every cell saves and stops, and waits for the next time.  Asked twice, or after
half a minute, it waits for nobody.  A machine that is in the way (a full disk, a part's file that is another one now):
nothing new begins, whoever can ends, and the sentence that says why is the end.
"""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from hqlt_lab.errors import StoreError, TrainingError
from hqlt_lab.files import with_room
from hqlt_lab.study import sources
from hqlt_lab.study.agenda import Agenda
from hqlt_lab.study.database import LostTurn
from hqlt_lab.study.hands import PATIENCE, Event, Hands
from hqlt_lab.study.job import Job, Tracker, card_of
from hqlt_lab.study.others import Others
from hqlt_lab.study.place import Place
from hqlt_lab.study.search import point_of
from hqlt_lab.study.view import View
from hqlt_lab.track.provenance import code_of
from hqlt_lab.train.interrupt import ONE_REQUEST

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Coordinator:
    """Trains every cell that waits and is wanted."""

    def __init__(
        self,
        agenda: Agenda,
        crew: Hands,
        tracker: Tracker,
        view: View,
        wanted: Callable[[Place], bool],
        limit: int | None = None,
    ) -> None:
        self.agenda, self.ledger, self.crew, self.tracker, self.view = agenda, agenda.ledger, crew, tracker, view
        self.wanted, self.left = wanted, math.inf if limit is None else limit
        self.queue: list[Place] = []
        self.jobs: dict[str, Job] = {}
        self.asked, self.heard, self.deadline, self.blocked = 0, 0.0, math.inf, ""
        self.others = Others(agenda, view)
        self.ledger.book.hurried = lambda: self.asked > 0

    def work(self) -> bool:
        """Go on until nothing is left to do; False if it was stopped before."""
        with self.listening(), self.saving():
            while True:
                self.hand_out()
                if not self.jobs and self.blocked:
                    raise TrainingError(self.blocked)
                if not self.jobs and (self.asked or self.left <= 0 or not self.others.have(self.wanted)):
                    self.others.look(self.jobs, at_once=not self.asked)
                    self.stop_if_asked()  # a crew that works elsewhere says what goes on without us
                    return not self.asked
                for event in self.crew.events(timeout=0.25):
                    self.hear(event)
                self.others.look(self.jobs)
                self.view.look()
                self.stop_if_asked()

    def hand_out(self) -> None:
        """Give out cells while there is room."""
        while not self.asked and not self.blocked and self.left > 0 and (place := self.next()):
            if not self.crew.room_for(self.agenda.example(place)):
                return
            if job := self.claim():
                self.left -= 1
                self.others.shown.discard(job.place.key)  # it is ours now
                self.show(job.place.key)
                with with_room(job.folder):  # may be behind a link, on a disk of its own
                    self.crew.start(job.place.key, job.cell, job.folder, len(self.ledger.of(job.place.key)))

    def next(self) -> Place | None:
        """The cell whose turn it is; after a failure or a search there may be new ones."""
        while self.queue and not self.waits(self.queue[0]):
            self.queue.pop(0)  # somebody else was faster
        if not self.queue:
            self.queue = [place for place in self.agenda.places() if self.wanted(place) and self.waits(place)]
        return self.queue[0] if self.queue else None

    def waits(self, place: Place) -> bool:
        """Whether nobody trains a cell that has to be trained."""
        return place.key not in self.jobs and self.agenda.stands(place) == "waiting"

    def claim(self) -> Job | None:
        """Begin the next cell, while nobody else begins one."""
        job = None
        try:
            with self.ledger.claiming():
                place = self.next()  # perhaps another one than before: others may have been faster
                if place and self.crew.room_for(self.agenda.example(place)):
                    self.queue.pop(0)
                    job = self.jobs[place.key] = self.begin(place)
        except LostTurn:
            if job is not None:
                del self.jobs[job.place.key]
                self.ledger.finish(job.attempt, "interrupted", step=0)
            return None
        return job

    def begin(self, place: Place) -> Job:
        """Write an attempt at a cell into the ledger."""
        agenda, study = self.agenda, self.agenda.studies[place.arm.title]
        search = {} if place.counts else agenda.search
        trial = self.ledger.ask(study, search, agenda.values(place) if search else None)
        point = point_of(trial.params, agenda.experiment.tune) if search else place.point
        assert point is not None
        cell = agenda.cell(place, point)
        folder, code = agenda.store.cell(place.key, self.ledger.generations.get(place.key, 0)), code_of(cell)
        made_by = sources.made_by(folder, code)
        sources.note(folder, made_by)
        told = {"key": place.key, "arm": place.arm.title, "seed": place.seed, "point": dict(point)}
        told |= {"counts": place.counts, "code": code, "made_by": made_by}
        job = Job(place, cell, self.ledger.begin(study, trial, told), folder)
        if self.may_be_given_up(job):
            job.judged = job.curve(agenda.experiment.measure.select)
            self.ledger.report(job.attempt, job.judged)
        return job

    def hear(self, event: Event) -> None:
        """Take in what happened to a cell."""
        job = self.jobs[event.key]
        if event.word == "point":
            self.follow(job, **event.told)
            return
        job.over = True
        status, value, told = self.verdict(job, event)
        self.ledger.finish(job.attempt, status, value, **told)
        self.show(event.key)
        del self.jobs[event.key]

    def follow(self, job: Job, step: int, metrics: dict[str, float]) -> None:
        """A point of a cell's curves; a cell that is being tuned may turn out to be hopeless."""
        job.step, job.latest = step, job.latest | metrics
        self.view.point(job.place.key, step, metrics)
        value = metrics.get(self.agenda.experiment.measure.select)
        if value is None or step in job.judged or not self.may_be_given_up(job):
            return
        self.ledger.report(job.attempt, {step: value})
        if self.ledger.hopeless(job.attempt):
            self.crew.give_up(job.place.key)

    def may_be_given_up(self, job: Job) -> bool:
        """Where the file says so, while something is tuned: reported seeds are not to be selected."""
        return bool(self.agenda.experiment.prune) and not (self.agenda.search and job.place.counts)

    def verdict(self, job: Job, event: Event) -> tuple[Any, float | None, dict[str, Any]]:
        """From an event to the words of the ledger: status, value, and what else is kept."""
        told = dict(event.told)
        if event.word == "ended":
            status, why = told.pop("status"), told.pop("message")
            value = told["metrics"].get(job.cell.measure.select, math.nan)
            if status == "done" and math.isnan(value):
                status, why = "diverged", f"{job.cell.measure.select} is not a number. {why}".strip()
            return status, value, {**told, "why": why}
        if event.word == "pruned":
            why = f"Given up at step {job.step}: most other cells of its arm were better."
            return "pruned", None, {"why": why, "step": job.step, "metrics": job.latest}
        if event.word == "blocked":
            self.blocked = self.blocked or told["why"]
            return "interrupted", None, {"step": job.step, "why": told["why"]}
        if event.word == "interrupted" or self.asked:
            return "interrupted", None, {"step": job.step}
        return "failed", None, {**told, "step": job.step}

    def show(self, key: str) -> None:
        """Tell whoever watches how a cell stands now."""
        job = self.jobs[key]
        record = self.agenda.record(job.place)
        self.tracker.tell(card_of(job.cell, record))
        if record.state == "running":
            self.view.started(record, job.cell)
        else:
            self.view.settled(record)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM are requests, where this is the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.ask) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Where the ledger cannot be used any more, the cells under way still save; what they say is in folders."""
        try:
            yield
        except StoreError:
            until, left = time.monotonic() + PATIENCE, {key for key, job in self.jobs.items() if not job.over}
            while left and self.asked < 2 and time.monotonic() < until:
                self.crew.interrupt()
                left -= {event.key for event in self.crew.events(timeout=0.25) if event.word != "point"}
            raise

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Someone wants this to stop; SIGTERM may come twice of one who tells every process."""
        now = time.monotonic()
        self.asked += not (number == signal.SIGTERM and self.asked and now - self.heard < ONE_REQUEST)
        self.heard = now

    def stop_if_asked(self) -> None:
        """Have the cells saved; when that takes too long, do without."""
        if not self.asked:
            return
        if self.deadline == math.inf:
            if self.jobs:
                self.view.stopping()
            self.deadline = time.monotonic() + PATIENCE
        self.crew.interrupt()
        if self.asked > 1 or time.monotonic() > self.deadline:
            self.crew.kill()
