"""Storage of a study: its folder with one subfolder per cell, and the backend of its ledger.

runs/studies/NAME/cells/KEY/           settings, checkpoints, metrics, log and outcome of a cell
runs/studies/NAME/cells.journal        the ledger as a file, with one writing process at a time
runs/studies/NAME/store.json           instead of the journal: URL of the database with the ledger, which
                                       several processes share ($HQLT_STORE)
runs/mlflow.db, runs/artifacts/        MLflow, shared by all studies

Here a worker is a coordinator process that has joined the study (`hqlt run`, `hqlt worker`), not a training process of
an executor.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from hqlt_lab.errors import StoreError
from hqlt_lab.files import translate_write_errors
from hqlt_lab.study.ledger import postgres
from hqlt_lab.study.ledger.journal import JOURNAL_FILE, JournalBackend
from hqlt_lab.study.ledger.trial_reader import TrialReader

STORE_VARIABLE = "HQLT_STORE"
T = TypeVar("T")


class LedgerBackend(Protocol):
    """Backend of a ledger, a journal file or a database: sessions, locks, live workers and Optuna's storage."""

    is_shared: bool  # whether several processes may write at the same time
    worker_id: str  # id of this process in what it writes
    should_abort: Callable[[], bool]  # stops retrying when it returns True

    @property
    def study_prefix(self) -> str: ...  # prefix of this study's names in Optuna's storage
    @property
    def exists(self) -> bool: ...  # whether the ledger has been created
    def session(self) -> AbstractContextManager[None]: ...
    def list_workers(self, exclude_self: bool = False) -> list[str]: ...
    def liveness_check(self) -> Callable[[str], bool]: ...
    def claim_lock(self) -> AbstractContextManager[bool]: ...
    def call_with_retry(self, operation: Callable[[], T]) -> T: ...
    def check_intact(self) -> None: ...  # raises StoreError if another program has damaged a journal
    def open_reader(self) -> TrialReader: ...
    def open_storage(self) -> Any: ...


class StudyStore:
    """The folder of one study."""

    def __init__(self, root: str | Path, name: str) -> None:
        self.root, self.name = Path(root).resolve(), name
        self.folder = self.root / "studies" / name
        self.cells_folder = self.folder / "cells"
        self.journal_file = self.folder / JOURNAL_FILE
        self.backend = self.open_backend(os.environ.get(STORE_VARIABLE, ""))

    def open_backend(self, url: str) -> LedgerBackend:
        """Return the backend that the study uses; a new study gets a database if $HQLT_STORE is set."""
        if (self.folder / postgres.STORE_FILE).exists() or (url and not self.journal_file.exists()):
            return postgres.PostgresBackend(self.folder, url)
        return JournalBackend(self.folder)

    def cell_folder(self, key: str, generation: int = 0) -> Path:
        """Return the folder of a cell, which is a new one for each generation.

        The key is checked, because the ledger may come from an untrusted source.
        """
        if Path(key).name != key:
            raise StoreError(f"{self.folder}: the ledger is damaged: {key!r} is not a cell.")
        return self.cells_folder / (f"{key}.{generation}" if generation else key)

    def find_generations(self) -> dict[str, int]:
        """Return the newest generation of each superseded cell.

        It is read from the names of the folders, which remain if the journal is lost.
        """
        generations: dict[str, int] = {}
        for folder in self.cells_folder.glob("*.*"):
            key, _, number = folder.name.partition(".")
            generations[key] = max(int(number) if number.isdigit() else 0, generations.get(key, 0))
        return generations

    @contextmanager
    def session(self) -> Iterator[None]:
        """Open the ledger for writing: exclusively for a journal, together with other processes for a database."""
        if os.environ.get(STORE_VARIABLE) and not self.backend.is_shared:
            raise StoreError(
                f"{self.journal_file}: this study is stored in a file, but ${STORE_VARIABLE} is set. Unset it; or move "
                "the file away, and finished cells are imported into the database from their folders."
            )
        with translate_write_errors(self.folder), self.backend.session():
            yield

    def other_workers(self) -> list[str]:
        """Return readable names of the other live workers; always empty for a journal."""
        return self.backend.list_workers(exclude_self=True)


def is_study_folder(folder: Path) -> bool:
    """Return whether a folder has the ledger of a study."""
    return (folder / JOURNAL_FILE).is_file() or (folder / postgres.STORE_FILE).is_file()


def list_studies(root: Path) -> list[Path]:
    """Return the folders of all studies that have a ledger."""
    return [folder for folder in sorted((root / "studies").glob("*")) if is_study_folder(folder)]
