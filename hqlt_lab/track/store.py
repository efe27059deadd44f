"""Opening a tracking store, and noticing in time that it is away.

MLflow waits 20 seconds for a locked SQLite file and minutes for a server that is down, and SQLite makes a new empty
file where one was moved away.  So the courier knocks first: a store that cannot be used now says so within a second.
"""

import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import urlopen

from hqlt_lab.errors import StoreError

if TYPE_CHECKING:
    from mlflow import MlflowClient

SQLITE = "sqlite:///"
PATIENCE = 1.0  # seconds that a knock may take
SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # the courier tries again by itself, and must not be held up in between
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}


class Away(StoreError):
    """The tracking store cannot be used now; later it may."""


@dataclass(frozen=True)
class Tracker:
    """Where MLflow keeps runs and files."""

    uri: str
    artifacts: str = ""  # a folder or URI; empty: a server decides

    @property
    def database(self) -> Path | None:
        """The SQLite file, if it is one."""
        return Path(self.uri.removeprefix(SQLITE)) if self.uri.startswith(SQLITE) else None

    @property
    def served(self) -> bool:
        """Whether a server stands between."""
        return self.uri.startswith(("http://", "https://"))


def default_tracker(runs: Path) -> Tracker:
    """A database and a folder of files, embedded in the folder of all runs."""
    return Tracker(f"{SQLITE}{runs.absolute() / 'mlflow.db'}", str(runs.absolute() / "artifacts"))


class Store:
    """A tracking store that is opened when it is first needed, and made if it was never there."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker
        self.client: MlflowClient | None = None

    def open(self) -> "MlflowClient":
        """The client, after a knock."""
        if self.client is None and (file := self.tracker.database) is not None and not has_content(file):
            make(file, self.tracker)
        if self.client is None or self.tracker.database is not None:  # a file is cheap to ask, and easily moved
            self.knock()
        self.client = self.client or client_for(self.tracker)
        return self.client

    def knock(self) -> None:
        """Complain at once if the store would keep us waiting."""
        try:
            if (file := self.tracker.database) is not None:
                knock_file(file)
            elif self.tracker.served:
                knock_server(self.tracker.uri)
            else:
                knock_database(self.tracker.uri)
        except Away:
            raise
        except Exception as error:
            raise Away(first_line(error)) from error

    @property
    def identity(self) -> tuple[int, int] | None:
        """Changes when another file takes the database's place."""
        file = self.tracker.database
        if file is None or not file.exists():
            return None
        there = file.stat()
        return there.st_dev, there.st_ino


def make(file: Path, tracker: Tracker) -> None:
    """A new database.  Its tables are made under a lock: two processes that both make them would clash."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with locked(file.with_name(f"{file.name}.lock"), patience=60):
        if not has_content(file):
            quietly(tracker)
            from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

            # MlflowClient would do the same, but only once per process, not for a file that was deleted since
            SqlAlchemyStore(tracker.uri, tracker.artifacts)


def has_content(file: Path) -> bool:
    """SQLite makes an empty file where there was none."""
    return file.exists() and file.stat().st_size > 0


def client_for(tracker: Tracker) -> "MlflowClient":
    """MLflow's client."""
    quietly(tracker)
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=tracker.uri)


def quietly(tracker: Tracker) -> None:
    """Before MLflow is imported: no telemetry, no chatter, no long waits.  The user's own settings stay."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    if tracker.database is not None:
        # a pooled connection would go on writing into a file that was moved away
        os.environ.setdefault("MLFLOW_SQLALCHEMYSTORE_POOLCLASS", "NullPool")
    import mlflow  # noqa: F401  # sets up its loggers

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what goes wrong is told by the courier


def knock_file(file: Path) -> None:
    """A SQLite file has to be there, and not locked."""
    if not has_content(file):
        raise Away(f"{file} is not there")
    with closing(sqlite3.connect(file, timeout=PATIENCE, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        database.execute("ROLLBACK")


def knock_server(uri: str) -> None:
    """A server has to answer; what it answers is MLflow's business."""
    try:
        urlopen(f"{uri.rstrip('/')}/health", timeout=3 * PATIENCE).close()
    except HTTPError as answer:
        answer.close()
        if answer.code in (502, 503, 504):  # the answer of a proxy in front of a server that is down
            raise


def knock_database(uri: str) -> None:
    """Another database has to take a connection."""
    from sqlalchemy import NullPool, create_engine

    create_engine(uri, poolclass=NullPool).connect().close()


@contextmanager
def locked(path: Path, patience: float) -> Iterator[None]:
    """Hold a lock that the system frees when its holder dies."""
    until = time.monotonic() + patience
    with path.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > until:
                    raise Away(f"another process holds {path}") from None
                time.sleep(0.05)
        yield


def first_line(error: BaseException) -> str:
    """What went wrong, in one line."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:300].rstrip(".")
