"""Where a study lives: one folder per experiment, and a book of every attempt at every cell.

runs/studies/NAME/cells/KEY/           a cell's settings, checkpoints, curves, log and outcome
runs/studies/NAME/cells.journal        the book, by itself: a file that one program at a time may write to
runs/studies/NAME/store.json           or the database that it is in, where several programs share it ($HQLT_STORE)
runs/mlflow.db, runs/artifacts/        MLflow, shared by all studies
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from hqlt_lab.errors import StoreError
from hqlt_lab.files import with_room
from hqlt_lab.study import database
from hqlt_lab.study.journal import FILE as JOURNAL
from hqlt_lab.study.journal import Journal
from hqlt_lab.study.reader import Reader

ENVIRONMENT = "HQLT_STORE"
T = TypeVar("T")


class Book(Protocol):
    """Who may write, who is at work, and Optuna's view of it: a file or a database."""

    shared: bool  # whether several programs write at once
    who: str  # we, in what we write
    tell: Callable[[str], None]  # a sentence, when it cannot be reached and is waited for
    hurried: Callable[[], bool]  # whether nobody wants to wait for it any more

    @property
    def prefix(self) -> str: ...  # of the names of this study in Optuna's storage
    @property
    def exists(self) -> bool: ...
    def owned(self) -> AbstractContextManager[None]: ...
    def workers(self, but_us: bool = False) -> list[str]: ...
    def living(self) -> Callable[[str], bool]: ...
    def claiming(self) -> AbstractContextManager[bool]: ...
    def patiently(self, ask: Callable[[], T]) -> T: ...
    def reader(self) -> Reader: ...
    def storage(self) -> Any: ...


class Store:
    """The folder of one study."""

    def __init__(self, root: str | Path, name: str) -> None:
        self.root, self.name = Path(root).resolve(), name
        self.folder = self.root / "studies" / name
        self.cells = self.folder / "cells"
        self.journal = self.folder / JOURNAL
        self.book = self.open_book(os.environ.get(ENVIRONMENT, ""))

    def open_book(self, url: str) -> Book:
        """The one that the study has; a new study gets what the environment asks for."""
        if (self.folder / database.FILE).exists() or (url and not self.journal.exists()):
            return database.Database(self.folder, url)
        return Journal(self.folder)

    def cell(self, key: str, generation: int = 0) -> Path:
        """A cell's own folder; after it was forgotten, a new one.  A ledger may come from anybody."""
        if Path(key).name != key:
            raise StoreError(f"{self.folder}: its ledger is damaged; {key!r} is no cell.")
        return self.cells / (f"{key}.{generation}" if generation else key)

    def generations(self) -> dict[str, int]:
        """Of each cell that was forgotten the number of its newest folder, which outlives the journal."""
        found: dict[str, int] = {}
        for folder in self.cells.glob("*.*"):
            key, _, number = folder.name.partition(".")
            found[key] = max(int(number) if number.isdigit() else 0, found.get(key, 0))
        return found

    @contextmanager
    def owned(self) -> Iterator[None]:
        """May write: alone into a file, among others into a database."""
        if os.environ.get(ENVIRONMENT) and not self.book.shared:
            raise StoreError(
                f"{self.journal}: this study is kept in a file, and ${ENVIRONMENT} names a database. Unset it; or move "
                "the file away, and cells that are done are taken into the database from their folders."
            )
        with with_room(self.folder), self.book.owned():
            yield

    def others(self) -> list[str]:
        """Who else is at work here; nobody, where one alone may be."""
        return self.book.workers(but_us=True)


def is_study(folder: Path) -> bool:
    """Whether a study was ever begun here."""
    return (folder / JOURNAL).is_file() or (folder / database.FILE).is_file()


def studies_in(root: Path) -> list[Path]:
    """The folders of all studies that were begun."""
    return [folder for folder in sorted((root / "studies").glob("*")) if is_study(folder)]
