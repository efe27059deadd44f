"""The calls to MLflow: one experiment per file, a parent run for the study, a flat child run per cell.

Every call may be the last one before a crash, and each may be repeated: runs are found again by their tags, a point
that is sent twice is stored once (to MLflow a point's key is all of it), and what was sent is noted after it was.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.experiment.cell import digest
from hqlt_lab.track import spool
from hqlt_lab.track.card import ENDED, CellCard, StudyCard
from hqlt_lab.track.folder import began, ended, evaluation_points, kept_files, outcome_points, results_text
from hqlt_lab.track.home import Home, Run, data_of, found_run, home_of, introduce, new_run
from hqlt_lab.track.sent import Sent, read_sent
from hqlt_lab.track.spool import Point
from hqlt_lab.track.store import Store, Tracker
from hqlt_lab.track.words import STATUS, cell_tags, clean, params

if TYPE_CHECKING:
    from mlflow.entities import Metric

PIECE = 1_000_000  # bytes of a spool that are read at once
MOST = 1000  # points that MLflow takes in one call


class Mirror:
    """One study in one tracking store.  What fails raises, and may be tried again."""

    def __init__(self, tracker: Tracker, study: StudyCard) -> None:
        self.tracker, self.study = tracker, study
        self.store = Store(tracker)
        self.home: Home | None = None

    def enter(self) -> Home:
        """The study's place, looked up again if another database stands where the last one was."""
        self.client = self.store.open()
        if self.home is None or self.home.identity != self.store.identity:
            home = home_of(self.client, self.tracker, self.study, self.store.identity)
            introduce(self.client, self.tracker, self.study, home)
            self.home = home
        return self.home

    def look_again(self) -> None:
        """Something was not as expected: trust nothing that was looked up."""
        self.home = None

    def send(self, card: CellCard) -> None:
        """Send what MLflow lacks of a cell."""
        home = self.enter()
        if not card.folder.exists() or (card.state == "waiting" and card.key not in home.cells):
            return
        run = self.run_of(card, home)
        tags = cell_tags(card, self.study, home.parent.id)
        sent, told = self.sent_of(card, home, run), digest([tags, dict(card.code), results_text(card.folder)])
        points, end = spool.read(card.folder, sent.offset, PIECE)
        if told == sent.told and not points:
            return
        if told != sent.told:
            points = [*points, *outcome_points(card.folder), *evaluation_points(card.folder)]
        while True:
            self.batch(run, points, new_in(tags, run.tags), params(card))
            sent = replace(sent, offset=end)
            points, end = spool.read(card.folder, end, PIECE)
            if not points:
                break
            sent.note(card.folder)
        if told != sent.told:
            self.settle(run, card)
        replace(sent, told=told).note(card.folder)

    def run_of(self, card: CellCard, home: Home) -> Run:
        """The cell's run, which may have to be made."""
        if card.key not in home.cells:
            tags, noted = cell_tags(card, self.study, home.parent.id), read_sent(card.folder)
            # another process may have made it since this one looked
            made = found_run(self.client, home.experiment, noted.run) if noted else None
            home.cells[card.key] = made or new_run(self.client, home.experiment, tags, began(card.folder))
        run = home.cells[card.key]
        if not run.has_data:
            self.client.log_inputs(run.id, datasets=[data_of(card.task)])
            run.has_data = True
        return run

    def sent_of(self, card: CellCard, home: Home, run: Run) -> Sent:
        """What that run has; one that was noted for another run counts for nothing."""
        sent, nothing = read_sent(card.folder), Sent(uri=self.tracker.shown, experiment=home.experiment, run=run.id)
        same = sent is not None and (sent.uri, sent.run) == (nothing.uri, nothing.run)
        return sent if same and sent is not None else nothing

    def batch(self, run: Run, points: Sequence[Point], tags: Mapping[str, str], params: Mapping[str, str]) -> None:
        """Send points, with the tags and parameters that are new, in as few calls as MLflow allows."""
        from mlflow.entities import Param, RunTag

        # a parameter cannot change: where an arm was renamed, its tag tells
        new_params = [Param(name, value) for name, value in params.items() if name not in run.params]
        new_tags = [RunTag(name, value) for name, value in tags.items()]
        metrics = metrics_of(points)
        while (some := list(islice(metrics, MOST))) or new_tags or new_params:
            self.client.log_batch(run.id, some, new_params, new_tags, synchronous=True)
            new_params, new_tags = [], []
        run.tags |= tags
        run.params = dict(params) | run.params

    def settle(self, run: Run, card: CellCard) -> None:
        """Give the run its status; with the end of a cell, its files."""
        if card.state in ENDED:
            for file in kept_files(card.folder):
                self.client.log_artifact(run.id, str(file), file.parent.name if file.parent != card.folder else None)
            if card.code:
                self.client.log_dict(run.id, {"code": dict(card.code)}, "provenance.json")
            self.client.set_terminated(run.id, STATUS[card.state], ended(card.folder))
        elif run.status != STATUS[card.state]:
            self.client.update_run(run.id, STATUS[card.state])
        run.status = STATUS[card.state]

    def attach(self, path: Path) -> None:
        """Put a file, or all files of a folder, beside the study's run."""
        add = self.client.log_artifacts if path.is_dir() else self.client.log_artifact
        add(self.enter().parent.id, str(path), "report")

    def mark(self, status: str) -> None:
        """Whether the study is running or finished."""
        parent = self.enter().parent
        if parent.status != status:
            self.client.update_run(parent.id, status) if status == "RUNNING" else self.client.set_terminated(parent.id)
            parent.status = status


def metrics_of(points: Sequence[Point]) -> "Iterator[Metric]":
    """Every value as MLflow stores it, with its own time."""
    from mlflow.entities import Metric

    for point in points:
        for name, value in point.metrics.items():
            yield Metric(clean(name), value, point.time, point.step)


def new_in(told: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """What is not known yet, or known otherwise."""
    return {name: value for name, value in told.items() if known.get(name) != value}
