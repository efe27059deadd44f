"""A crew that works elsewhere: submits the jobs of a study, unless they are there already, and looks after them.

It has no room for cells itself.  What the jobs do is in the ledger, which whoever follows the study reads anyway.
"""

import fcntl
import time
from collections.abc import Iterator
from pathlib import Path

from hqlt_lab.errors import TrainingError
from hqlt_lab.experiment.cell import Cell
from hqlt_lab.study.errand import Errand
from hqlt_lab.study.hands import Event
from hqlt_lab.study.slurm.jobs import Away, Job, arrays, in_words, queued, submit

FOLDER = "slurm"  # of a study: the script, the number of the last array, and what its jobs print
LOOK = 10.0  # seconds between two questions


class Follower:
    """The jobs of one study."""

    def __init__(self, workers: int, name: str, text: str, errand: Errand) -> None:
        self.workers, self.name, self.text, self.errand = workers, name, text, errand
        self.folder = errand.folder / FOLDER
        self.jobs: list[Job] | None = None  # None: nobody has looked yet
        self.looked, self.gone, self.silent, self.leaving = 0.0, False, False, False

    def room_for(self, cell: Cell) -> bool:
        """Cells are begun elsewhere."""
        return False

    def start(self, key: str, cell: Cell, folder: Path, attempt: int) -> None:
        raise AssertionError("there is no room here")

    def events(self, timeout: float) -> Iterator[Event]:
        """Nothing ever happens here; now and then the jobs are looked at."""
        if self.jobs is None:
            self.begin()
        elif time.monotonic() - self.looked > LOOK:
            self.look()
        time.sleep(timeout)
        yield from ()

    def begin(self) -> None:
        """Follow the jobs that are there, or submit; two who come at once do it one after the other."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "job.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                self.jobs = queued(self.name)
            except Away as error:
                raise TrainingError(
                    f"SLURM cannot be asked which jobs this study has, and nothing was submitted. {error}. "
                    "Run the same command when `sinfo` answers."
                ) from error
            if self.jobs:
                self.say(f"This study has jobs in SLURM already, {in_words(self.jobs)}: following them.")
            else:
                self.submit()
        self.looked = time.monotonic()

    def submit(self) -> None:
        """Write the script and queue it."""
        file = self.folder / "job.sh"
        file.write_text(self.text)
        number = submit(file, self.name, self.errand.environment)
        (self.folder / "job.id").write_text(f"{number}\n")
        self.say(f"Submitted to SLURM: array {number} of {self.workers} jobs. What they print: {self.folder}")

    def look(self) -> None:
        """See that somebody is there; twice, because those who found nothing left to do are gone first."""
        try:
            self.jobs = queued(self.name)
        except Away as error:
            if not self.silent:
                self.say(f"SLURM does not answer; its jobs go on, and so does the study. {error}")
            self.silent = True
            return
        finally:
            self.looked = time.monotonic()
        self.silent = False
        if not self.jobs and self.gone:
            raise TrainingError(
                f"All jobs of this study have ended, and cells still wait. What the jobs printed is in {self.folder}. "
                "The same command submits them anew."
            )
        self.gone = not self.jobs

    def give_up(self, key: str) -> None:
        """Whoever trains the cell decides that."""

    def interrupt(self) -> None:
        """Whoever follows leaves; the jobs do not."""
        self.leaving = True

    def kill(self) -> None:
        """Nobody here waits for anything."""

    def close(self) -> None:
        """Say what goes on without us."""
        if self.leaving and (numbers := self.numbers()):
            self.say(
                "The jobs go on without this program; the same command follows them again. End them with\n"
                f"    scancel {' '.join(numbers)}"
            )

    def numbers(self) -> list[str]:
        """Of the arrays that are still there, as far as SLURM tells."""
        try:
            return arrays(queued(self.name))
        except Away:
            return arrays(self.jobs or [])

    def say(self, sentence: str) -> None:
        """To whoever watches."""
        self.errand.tell(sentence)
