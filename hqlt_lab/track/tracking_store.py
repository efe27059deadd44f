"""An MLflow tracking store: its location, and a client that neither prints nor waits long."""

import glob
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from hqlt_lab.file_lock import file_lock
from hqlt_lab.files import commit_temp
from hqlt_lab.process_settings import MLFLOW_CLIENT_ENV, MLFLOW_SQLITE_ENV, set_env_defaults
from hqlt_lab.redact import first_error_line, redact_secrets, split_credentials
from hqlt_lab.track.store_health import TrackerUnavailable, check_database, check_server, check_sqlite_file, has_content

if TYPE_CHECKING:
    from mlflow import MlflowClient

SQLITE_PREFIX = "sqlite:///"


@dataclass(frozen=True)
class TrackingStore:
    """Location of the runs and artifacts of an MLflow instance."""

    uri: str
    artifacts: str = ""  # a folder or URI; empty: beside the SQLite database, or decided by the server

    @property
    def sqlite_path(self) -> Path | None:
        """The path of the SQLite database; None for other stores."""
        if not self.uri.startswith(SQLITE_PREFIX):
            return None
        return Path(unquote(self.uri.removeprefix(SQLITE_PREFIX).partition("?")[0]))  # as SQLAlchemy reads it

    @property
    def artifact_root(self) -> str:
        """The folder or URI of artifacts; empty if a server decides."""
        default = "" if self.sqlite_path is None else artifact_uri(self.sqlite_path.absolute().parent / "artifacts")
        return self.artifacts.rstrip("/") or default

    @property
    def redacted_uri(self) -> str:
        """The URI without its password, for messages and files."""
        return redact_secrets(split_credentials(self.uri).url)

    @property
    def is_remote(self) -> bool:
        """Whether the store is accessed through an MLflow server."""
        return self.uri.startswith(("http://", "https://"))

    @property
    def is_empty(self) -> bool:
        """Whether the store is a SQLite database that does not exist yet."""
        return self.sqlite_path is not None and not has_content(self.sqlite_path)


def default_tracking_store(runs: Path) -> TrackingStore:
    """Return the store in the folder of all runs: a SQLite database and a folder of artifacts."""
    return TrackingStore(sqlite_uri(runs.absolute() / "mlflow.db"), artifact_uri(runs.absolute() / "artifacts"))


def sqlite_uri(file: Path) -> str:
    """Return the URI of a SQLite database, in which SQLAlchemy decodes % and ends the path at a question mark."""
    # Without slashes in a path that needs encoding: MLflow would create the folders of the encoded path
    return f"{SQLITE_PREFIX}{quote(str(file), safe='') if set(str(file)) & set('%?') else file}"


def artifact_uri(folder: Path) -> str:
    """Return a folder as MLflow reads it: a path, or a file URI if the path has characters that URIs encode."""
    return folder.as_uri() if set(str(folder)) & set("%?#") else str(folder)


class StoreConnection:
    """A connection to a tracking store, opened at first use.  A missing SQLite database is created."""

    def __init__(self, tracking_store: TrackingStore) -> None:
        self.tracking_store = tracking_store
        self.client: MlflowClient | None = None

    def open_client(self) -> "MlflowClient":
        """Return the client, after a health check if one is cheap or due.  Raise TrackerUnavailable."""
        if self.client is None and (file := self.tracking_store.sqlite_path) is not None and not has_content(file):
            create_sqlite_database(file, self.tracking_store)
        # a file is cheap to check, and may have been moved since
        if self.client is None or self.tracking_store.sqlite_path is not None:
            self.check_available()
        self.client = self.client or create_client(self.tracking_store)
        return self.client

    def check_available(self) -> None:
        """Raise TrackerUnavailable if the store does not respond within seconds."""
        try:
            if (file := self.tracking_store.sqlite_path) is not None:
                check_sqlite_file(file)
            elif self.tracking_store.is_remote:
                check_server(self.tracking_store.uri)
            else:
                check_database(self.tracking_store.uri)
        except TrackerUnavailable:
            raise
        except Exception as error:
            raise TrackerUnavailable(first_error_line(error)) from error

    @property
    def file_identity(self) -> tuple[int, int] | None:
        """Device and inode of the SQLite file, which change if the file is replaced; None for other stores."""
        file = self.tracking_store.sqlite_path
        if file is None or not file.exists():
            return None
        stat = file.stat()
        return stat.st_dev, stat.st_ino


def create_sqlite_database(file: Path, tracking_store: TrackingStore) -> None:
    """Create a SQLite database with MLflow's tables, under a lock, because concurrent creation would fail."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(file.with_name(f"{file.name}.lock"), timeout=60):
        if not has_content(file):
            configure_mlflow(tracking_store)
            from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

            # Under a temporary name, so that a process that dies here leaves no incomplete database.  MlflowClient also
            # creates tables, but once per process, so not for a file that was deleted in the meantime
            temp_file = file.with_name(f"{file.name}.{os.getpid()}.making")
            for abandoned_file in file.parent.glob(f"{glob.escape(file.name)}.*.making"):
                abandoned_file.unlink(missing_ok=True)  # its process was killed, because this one holds the lock
            try:
                SqlAlchemyStore(sqlite_uri(temp_file.absolute()), tracking_store.artifact_root)
                commit_temp(temp_file, file)
            finally:
                temp_file.unlink(missing_ok=True)


def create_client(tracking_store: TrackingStore) -> "MlflowClient":
    """Return an MLflow client for this store."""
    configure_mlflow(tracking_store)
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=tracking_store.uri)


def configure_mlflow(tracking_store: TrackingStore) -> None:
    """Import MLflow with quiet loggers and short timeouts.  Environment variables set by the user have precedence."""
    set_env_defaults(MLFLOW_CLIENT_ENV)
    if tracking_store.sqlite_path is not None:
        set_env_defaults(MLFLOW_SQLITE_ENV)
    import mlflow  # noqa: F401  # configures its loggers

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # the sync thread reports errors
