"""The ledger as a file: Optuna's journal, which one program at a time may write to.

runs/studies/NAME/coordinator.lock     held by `hqlt run` as long as it lives; kill -9 frees it
runs/studies/NAME/cells.journal        every attempt at every cell
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from hqlt_lab.errors import StoreError
from hqlt_lab.study.journal_reader import JournalReader, intact
from hqlt_lab.study.reader import Reader

FILE = "cells.journal"
T = TypeVar("T")


class Journal:
    """Where a study's attempts are written down."""

    shared = False
    prefix = ""  # of Optuna's names: there is no other experiment in the file
    who = ""  # nobody asks: who is at work is the one who owns it

    def __init__(self, folder: Path) -> None:
        self.folder, self.file, self.lock_file = folder, folder / FILE, folder / "coordinator.lock"
        self.tell: Callable[[str], None] = lambda sentence: None  # it is never waited for
        self.hurried: Callable[[], bool] = lambda: False

    @property
    def exists(self) -> bool:
        return self.file.exists()

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Be the only one who writes here, or say who is."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.lock_file, os.O_CREAT | os.O_RDWR)
        except OSError as error:
            raise StoreError(
                f"{self.folder}: nothing can be written here ({error.strerror}). Name another folder: --runs FOLDER"
            ) from error
        if not locked(handle):
            os.close(handle)
            raise StoreError(
                f"{self.folder}: another program is at work on this study ({self.owner()}). "
                f"Wait for it, or stop it with Ctrl-C; `hqlt status` shows how far it is."
            )
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}".encode(), 0)
            mend(self.file)
            yield
        finally:
            os.close(handle)

    def owner(self) -> str:
        """Who wrote into the lock last."""
        return self.lock_file.read_text() or "it does not say which"

    def workers(self, but_us: bool = False) -> list[str]:
        """Who is at work here now; beside us nobody can be."""
        return [self.owner()] if self.busy and not but_us else []

    @property
    def busy(self) -> bool:
        """Whether someone is at work here now."""
        if not self.lock_file.exists():
            return False
        with self.lock_file.open() as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def living(self) -> Callable[[str], bool]:
        """Whether the one who began an attempt is still there: the only one who writes, if anybody does."""
        busy = self.busy
        return lambda who: busy

    @contextmanager
    def claiming(self) -> Iterator[bool]:
        """Nobody else begins cells: we own the file.  True: others may have written since."""
        yield False

    def patiently(self, ask: Callable[[], T]) -> T:
        """A file is there, or it is an error."""
        return ask()

    def reader(self) -> Reader:
        """One who reads all that is written here, again and again."""
        return JournalReader(self.file)

    def storage(self) -> Any:
        """Optuna's view of it."""
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with intact(self.file):
            return JournalStorage(JournalFileBackend(str(self.file)))


def locked(handle: int) -> bool:
    """Whether we got the lock; someone who only looks whether it is free holds it for an instant."""
    for _ in range(20):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.05)
    return False


def mend(journal: Path) -> None:
    """Undo what a kill in the middle of a write leaves behind.

    Half a line at the end, which the next line would join, so that nothing could be read any more; and the lock of the
    journal, for which everyone would wait half a minute.
    """
    journal.with_name(f"{journal.name}.lock").unlink(missing_ok=True)
    if journal.exists():
        written = journal.read_bytes()
        if not written.endswith(b"\n"):
            os.truncate(journal, written.rfind(b"\n") + 1)
