"""A thread that looks at the cells' folders now and then and sends what MLflow lacks.

    courier = Courier(tracker, study)
    courier.tell(card)                  whenever a cell begins or ends; costs nothing
    left = courier.finish(timeout=30)   None, or a sentence about what is still to be sent

Nothing that goes wrong here reaches the caller: what could not be sent stays in its folder and is tried again, by this
thread, by the next run of the same command, or by `hqlt ui`.
"""

import threading
from collections.abc import Iterable
from pathlib import Path

from hqlt_lab.track.card import ENDED, CellCard, StudyCard
from hqlt_lab.track.folder import evaluation_points, sample_files
from hqlt_lab.track.home import Home
from hqlt_lab.track.knock import first_line, locked
from hqlt_lab.track.mirror import Mirror, metrics_of
from hqlt_lab.track.sent import read_sent
from hqlt_lab.track.store import Store, Tracker

EVERY = 2.0  # seconds between two rounds
LONGEST_WAIT = 60.0  # seconds between two rounds while the tracker is away
LOCK = "mlflow.lock"


class Delivery:
    """What is to be sent, and what of it is there."""

    def __init__(self, tracker: Tracker, study: StudyCard) -> None:
        self.mirror, self.study = Mirror(tracker, study), study
        self.cards: dict[str, CellCard] = {}
        self.files: list[Path] = []
        self.home: Home | None = None
        self.there: dict[str, CellCard] = {}  # cards that were sent whole and will not change by themselves

    def undone(self) -> list[CellCard]:
        """The cards to look at: told anew, or of cells that may have gone on."""
        return [card for key, card in list(self.cards.items()) if self.there.get(key) is not card]

    def round(self, status: str, patience: float = 10.0) -> None:
        """Send everything once.  One cell's trouble does not hold up the others; the last trouble is raised."""
        trouble: Exception | None = None
        self.study.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.study.folder / LOCK, patience):  # two processes would both make a run for a new cell
            self.look_up()
            for card in self.undone():
                try:
                    self.mirror.send(card)
                    if card.state in ENDED:
                        self.there[card.key] = card
                except Exception as error:
                    trouble = error
                    self.mirror.look_again()
                    self.mirror.store.knock()
            while self.files:
                self.mirror.attach(self.files[0])
                self.files.pop(0)
            self.mirror.mark(status)
        if trouble is not None:
            raise trouble

    def look_up(self) -> None:
        """Find the study in MLflow; what was sent to a database that is no longer there counts for nothing."""
        home = self.mirror.enter()
        self.mirror.store.knock()
        if home is not self.home:
            self.home = home
            self.there.clear()

    def sentence(self, why: str) -> str:
        """What is still kept here only."""
        cells = f"{len(self.undone())} of {len(self.cards)} cells"
        return (
            f"MLflow at {self.mirror.tracker.shown} does not have everything yet ({cells} to look at): {why}. "
            f"Nothing is lost: {self.study.folder} holds it all, and the same command or `hqlt ui` catches up."
        )


class Courier:
    """Mirrors one study while it runs."""

    def __init__(self, tracker: Tracker, study: StudyCard, every: float = EVERY) -> None:
        self.delivery, self.every = Delivery(tracker, study), every
        self.left: str | None = None  # what was still to be sent in the end, in a sentence
        self.away: str | None = None  # why the tracker cannot be reached, while it cannot
        self.leaving, self.done, self.over = (threading.Event() for _ in range(3))
        self.thread = threading.Thread(target=self.work, name="mlflow courier", daemon=True)
        self.thread.start()

    def tell(self, card: CellCard) -> None:
        """How a cell stands now; the latest card counts."""
        self.delivery.cards[card.key] = card

    def report(self, paths: Iterable[Path]) -> None:
        """Put these files or folders beside the study's run."""
        self.delivery.files += [Path(path) for path in paths]

    def finish(self, timeout: float) -> str | None:
        """Send the rest, for as long as that takes or the timeout allows; what is left, in a sentence."""
        self.leaving.set()
        done = self.done.wait(timeout)
        self.over.set()
        self.left = None if done else self.delivery.sentence(self.away or "it takes longer than expected")
        return self.left

    def work(self) -> None:
        """Rounds, until everything is there and nobody will tell more."""
        failures = 0
        while not self.over.is_set():
            leaving = self.leaving.is_set()
            try:
                self.delivery.round("FINISHED" if leaving else "RUNNING")
                self.away, failures = None, 0
                if leaving:
                    self.done.set()
                    return
            except Exception as error:  # of mlflow, sqlalchemy, requests, the disk: the thread has to live
                self.away, failures = first_line(error), failures + 1
            self.rest(failures)

    def rest(self, failures: int) -> None:
        """Until the next round: longer after each failure, but not when somebody waits for the end."""
        if self.leaving.is_set():
            self.over.wait(min(0.1 * 2**failures, self.every))
        else:
            self.leaving.wait(min(self.every * 2 ** min(failures, 10), LONGEST_WAIT))


def send_evaluations(tracker: Tracker, folder: Path) -> str | None:
    """Add what a cell scored when asked again to its run; what went wrong, in a sentence.

    A cell that has no run there yet is sent whole with its study.
    """
    sent = read_sent(folder)
    if sent is None or sent.uri != tracker.shown:
        return None
    try:
        client = Store(tracker).open()
        client.log_batch(sent.run, list(metrics_of(evaluation_points(folder))), synchronous=True)
        for file in sample_files(folder):
            client.log_artifact(sent.run, str(file), file.parent.name)
    except Exception as error:  # as above: the tracker is a guest
        return f"MLflow at {tracker.shown} does not have the evaluation yet: {first_line(error)}. {folder} holds it."
    return None


def catch_up(tracker: Tracker, study: StudyCard, cards: Iterable[CellCard]) -> str | None:
    """Send what MLflow lacks of these cells, now and without a thread; what is left, in a sentence."""
    delivery = Delivery(tracker, study)
    delivery.cards = {card.key: card for card in cards}
    running = any(card.state == "running" for card in delivery.cards.values())
    try:
        delivery.round("RUNNING" if running else "FINISHED", patience=2.0)
    except Exception as error:  # as above: the tracker is a guest, and must not stop what asked for it
        return delivery.sentence(first_line(error))
    return None
