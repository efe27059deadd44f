"""A tracking store: where it is, and opening it, quietly and without long waits."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hqlt_lab.files import put
from hqlt_lab.secrets import parted, scrubbed
from hqlt_lab.track.knock import Away, first_line, has_content, knock_database, knock_file, knock_server, locked

if TYPE_CHECKING:
    from mlflow import MlflowClient

SQLITE = "sqlite:///"
SETTINGS = {
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # the courier tries again by itself, and must not be held up in between
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}


@dataclass(frozen=True)
class Tracker:
    """Where MLflow keeps runs and files."""

    uri: str
    artifacts: str = ""  # a folder or URI; empty: beside the database, or where a server decides

    @property
    def database(self) -> Path | None:
        """The SQLite file, if it is one."""
        return Path(self.uri.removeprefix(SQLITE)) if self.uri.startswith(SQLITE) else None

    @property
    def files(self) -> str:
        """Where artifacts go, if that is not for a server to say."""
        beside = "" if self.database is None else str(self.database.absolute().parent / "artifacts")
        return self.artifacts.rstrip("/") or beside

    @property
    def shown(self) -> str:
        """The URI as it may be told and noted: without a password."""
        return scrubbed(parted(self.uri).address)

    @property
    def served(self) -> bool:
        """Whether a server stands between."""
        return self.uri.startswith(("http://", "https://"))

    @property
    def is_empty(self) -> bool:
        """Whether it is a file that nobody has written yet."""
        return self.database is not None and not has_content(self.database)


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

            # under another name, so that a process that dies here leaves no half of a database;
            # MlflowClient makes tables too, but only once per process, not for a file that was deleted since
            making = file.with_name(f"{file.name}.{os.getpid()}.making")
            making.unlink(missing_ok=True)
            SqlAlchemyStore(f"{SQLITE}{making.absolute()}", tracker.files)
            put(making, file)


def client_for(tracker: Tracker) -> "MlflowClient":
    """MLflow's client."""
    quietly(tracker)
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=tracker.uri)


def quietly(tracker: Tracker) -> None:
    """Before MLflow is imported: no chatter, no long waits.  The user's own settings stay."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    if tracker.database is not None:
        # a pooled connection would go on writing into a file that was moved away
        os.environ.setdefault("MLFLOW_SQLALCHEMYSTORE_POOLCLASS", "NullPool")
    import mlflow  # noqa: F401  # sets up its loggers

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what goes wrong is told by the courier
