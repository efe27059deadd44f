"""Where a study lives: one folder per experiment, which one coordinator at a time may write to.

runs/studies/NAME/coordinator.lock     held by `hqlt run` as long as it lives; kill -9 frees it
runs/studies/NAME/cells.journal        Optuna's journal: every attempt at every cell
runs/studies/NAME/cells/KEY/           a cell's settings, checkpoints, curves, log and outcome
runs/mlflow.db, runs/artifacts/        MLflow, shared by all studies
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hqlt_lab.errors import StoreError


class Store:
    """The folder of one study."""

    def __init__(self, root: str | Path, name: str) -> None:
        self.root, self.name = Path(root).resolve(), name
        self.folder = self.root / "studies" / name
        self.journal = self.folder / "cells.journal"
        self.lock_file = self.folder / "coordinator.lock"

    def cell(self, key: str, generation: int = 0) -> Path:
        """A cell's own folder; after it was forgotten, a new one."""
        return self.folder / "cells" / (f"{key}.{generation}" if generation else key)

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Be the only one who writes here, or say who is."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.lock_file, os.O_CREAT | os.O_RDWR)
        except OSError as error:
            raise StoreError(f"{self.folder}: nothing can be written here ({error.strerror}).") from error
        if not locked(handle):
            os.close(handle)
            raise StoreError(
                f"{self.folder}: another program is at work on this study ({self.owner()}). "
                f"Wait for it, or stop it with Ctrl-C; `hqlt status` shows how far it is."
            )
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}".encode(), 0)
            mend(self.journal)
            yield
        finally:
            os.close(handle)

    def owner(self) -> str:
        """Who wrote into the lock last."""
        return self.lock_file.read_text() or "it does not say which"

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

    def storage(self) -> Any:
        """Optuna's view of the journal."""
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            return JournalStorage(JournalFileBackend(str(self.journal)))
        except ValueError as error:  # a line that is no JSON, in the middle: `mend` cuts off the last one
            raise StoreError(
                f"{self.journal}: a line of it is damaged ({error}). Move the file away and run the study again: "
                "cells that are done are taken from their folders, the others go on from their checkpoints."
            ) from error


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
