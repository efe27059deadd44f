"""Ledger in PostgreSQL, where several processes on several machines share the cells of a study.

    hqlt_claims         a row per study.  A process that claims a cell locks it, so that no two claim the same cell; its
                        version shows whether others have claimed cells in the meantime
    hqlt_heartbeats     a row per process, with the time of its last heartbeat by the database's clock
    Optuna's tables     every attempt, as in a journal; all names begin with the namespace of the study

A killed process is detected at once on the same machine, and on other machines by its missing heartbeats.  Its attempts
are then closed as interrupted.  A worker may declare others dead only if its own connection was healthy for the whole
grace period; otherwise the outage may be the database's.

The URL is shown without its password, which belongs in the environment: $HQLT_STORE, PGPASSWORD, ~/.pgpass.
"""

import logging
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hqlt_lab.errors import StoreError
from hqlt_lab.redact import first_error_line
from hqlt_lab.study.ledger.database_url import create_namespace, read_store_note, redact_url, resolve_url
from hqlt_lab.study.ledger.trial_reader import PostgresReader, TrialReader
from hqlt_lab.study.ledger.worker_heartbeat import HeartbeatThread, is_known_dead, process_identity, read_grace_period

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine

logger = logging.getLogger(__name__)

STORE_FILE = "store.json"
RETRY_TIMEOUT = 600.0  # seconds for which an unavailable database is retried
CLAIM_TIMEOUT = 60  # seconds that a claim may take before the server releases its lock
T = TypeVar("T")
CREATE_TABLES = (
    "create table if not exists hqlt_claims (study text primary key, claim_version bigint not null)",
    "create table if not exists hqlt_heartbeats (study text, worker_id text, name text not null, "
    "started_at timestamptz not null, last_heartbeat timestamptz not null, primary key (study, worker_id))",
)
INSERT_CLAIM = "insert into hqlt_claims values (:study, 0) on conflict do nothing"
SELECT_CLAIM = "select claim_version from hqlt_claims where study = :study"
ADVANCE_CLAIM = "update hqlt_claims set claim_version = claim_version + 1 where study = :study"
UPSERT_HEARTBEAT = (
    "insert into hqlt_heartbeats values (:study, :worker_id, :name, now(), now()) "
    "on conflict (study, worker_id) do update set last_heartbeat = now()"
)
SELECT_SILENCE = (
    "select worker_id, extract(epoch from now() - last_heartbeat) from hqlt_heartbeats where study = :study"
)
SELECT_WORKERS = "select worker_id, name from hqlt_heartbeats where study = :study order by started_at"
DELETE_WORKER = "delete from hqlt_heartbeats where study = :study and worker_id = :worker_id"
DELETE_STALE_WORKERS = "delete from hqlt_heartbeats where last_heartbeat < now() - interval '7 days'"
# a broken connection is detected before it is used, and a silent one within half a minute
TCP_KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000}
ENGINE_OPTIONS: dict[str, Any] = {
    "pool_pre_ping": True, "pool_size": 2, "connect_args": {"connect_timeout": 10, **TCP_KEEPALIVE},
}  # fmt: skip


def make_engine(url: "URL") -> "Engine":
    """Return an SQLAlchemy engine, or raise with the missing driver."""
    from sqlalchemy import create_engine

    try:
        return create_engine(url, **ENGINE_OPTIONS)
    except ModuleNotFoundError as error:
        raise StoreError(
            "A study in PostgreSQL needs a database driver. Install it in the clone with: pip install -c "
            "constraints.txt -e '.[postgres]'"
        ) from error


def is_connection_error(error: BaseException) -> bool:
    """Return whether an error was caused by the connection and not by the statement."""
    from sqlalchemy.exc import InterfaceError, OperationalError

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OperationalError | InterfaceError) or getattr(cause, "connection_invalidated", False):
            return True
        cause = cause.__cause__
    return False


def root_cause_message(error: BaseException) -> str:
    """Return the first line of the driver's own error message."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_error_line(error)


class ClaimLost(StoreError):
    """The lock was lost while a cell was claimed, so another process may have claimed it too."""

    def __init__(self) -> None:
        super().__init__("The connection to the database was lost. No results are lost: run the same command again.")


class PostgresBackend:
    """Ledger backend that keeps attempts in PostgreSQL, shared by several processes."""

    is_shared = True

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.file = folder, folder / STORE_FILE
        note = read_store_note(self.file)
        self.namespace: str | None = note.get("namespace")
        self.url, self.has_env_url = resolve_url(url, note.get("url", ""), self.file), bool(url)
        self.worker_id, self.claim_version, self.grace_period = "", -1, read_grace_period()
        self.heartbeat: HeartbeatThread | None = None
        self.should_abort: Callable[[], bool] = lambda: False

    @property
    def exists(self) -> bool:
        return self.namespace is not None

    @property
    def study_prefix(self) -> str:
        return f"{self.namespace}/"

    @cached_property
    def engine(self) -> "Engine":
        """Connection pool, opened when it is first needed and closed with this object.

        Connecting sends a password, and a study folder may come from an untrusted source.  So a URL that is only in the
        folder is not used.
        """
        if not self.has_env_url:
            raise StoreError(
                f"{self.folder}: this study is stored in a database. If you trust it: export "
                f"HQLT_STORE={redact_url(self.url)}"
            )
        engine = make_engine(self.url)
        weakref.finalize(self, engine.dispose)
        return engine

    @cached_property
    def optuna_storage(self) -> Any:
        """Optuna's storage with its own connections; creates Optuna's tables if they do not exist."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.engine  # noqa: B018  # raises our own error if the URL or the driver is missing
        url = self.url.render_as_string(hide_password=False)
        storage = optuna.storages.RDBStorage(url, engine_kwargs=ENGINE_OPTIONS)
        weakref.finalize(self, storage.engine.dispose)
        return storage

    @contextmanager
    def session(self) -> Iterator[None]:
        """Join the study as a worker: create tables and namespace, then send heartbeats until the end."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"{self.folder}: the folder is not writable ({error.strerror}). Use another folder: --runs FOLDER"
            ) from error
        self.call_with_retry(self.create_tables, timeout=10)
        self.namespace = self.namespace or create_namespace(self.file, self.url)
        self.worker_id, name = process_identity()
        for statement in (INSERT_CLAIM, DELETE_STALE_WORKERS, UPSERT_HEARTBEAT):
            self.call_with_retry(
                lambda statement=statement: self.execute(statement, worker_id=self.worker_id, name=name)  # type: ignore[misc]
            )
        try:
            with HeartbeatThread(
                lambda: self.execute(UPSERT_HEARTBEAT, worker_id=self.worker_id, name=name), self.grace_period / 6
            ) as self.heartbeat:
                yield
        finally:
            with suppress(*self.transient_errors):  # otherwise the others notice the missing heartbeats
                self.execute(DELETE_WORKER, worker_id=self.worker_id)
            self.heartbeat = None
            self.dispose()

    def dispose(self) -> None:
        """Close all connections; later calls open new ones."""
        for name in {"engine", "optuna_storage"} & vars(self).keys():  # cached properties that were used
            cached = vars(self)[name]
            (cached if name == "engine" else cached.engine).dispose()

    def create_tables(self) -> None:
        """Create all tables, under a lock because two processes that create them at once would fail."""
        from sqlalchemy import text

        with self.engine.begin() as connection:
            connection.execute(text("select pg_advisory_xact_lock(726431)"))
            for statement in CREATE_TABLES:
                connection.execute(text(statement))
            self.optuna_storage  # noqa: B018

    def execute(self, statement: str, **params: Any) -> list[Any]:
        """Execute one statement with `:study` bound to the namespace, and return its rows."""
        from sqlalchemy import text

        with self.engine.begin() as connection:
            result = connection.execute(text(statement), {"study": self.namespace, **params})
            return list(result) if result.returns_rows else []

    def list_workers(self, exclude_self: bool = False) -> list[str]:
        """Return readable names of all live workers."""
        if not self.exists:
            return []
        is_alive = self.liveness_check()
        rows = self.call_with_retry(lambda: self.execute(SELECT_WORKERS))
        return [
            name
            for worker_id, name in rows
            if is_alive(worker_id) and not (exclude_self and worker_id == self.worker_id)
        ]

    def liveness_check(self) -> Callable[[str], bool]:
        """Return a function that tells whether a worker is alive, from the heartbeats at this moment."""
        rows = self.call_with_retry(lambda: self.execute(SELECT_SILENCE)) if self.exists else []
        may_declare_dead = self.heartbeat is None or self.heartbeat.seconds_healthy() > self.grace_period
        alive = {
            worker_id
            for worker_id, silent_seconds in rows
            if not (may_declare_dead and silent_seconds > self.grace_period) and not is_known_dead(worker_id)
        }
        return lambda worker_id: worker_id in alive

    @contextmanager
    def claim_lock(self) -> Iterator[bool]:
        """Hold the claim lock of the study.

        Yield whether other workers may have claimed cells since the last claim of this one.
        """
        from sqlalchemy import text

        connection, claim_version = self.call_with_retry(self.acquire_claim_lock)
        with connection:
            yield claim_version != self.claim_version
            try:
                connection.execute(text(ADVANCE_CLAIM), {"study": self.namespace})
                connection.commit()
            except self.transient_errors as error:
                raise ClaimLost from error
            self.claim_version = claim_version + 1

    def acquire_claim_lock(self) -> "tuple[Connection, int]":
        """Return a connection that holds the claim lock until it is closed or times out, and the claim version."""
        from sqlalchemy import text

        connection = self.engine.connect()
        try:
            for name in ("lock_timeout", "idle_in_transaction_session_timeout"):
                connection.exec_driver_sql(f"set local {name} = '{CLAIM_TIMEOUT}s'")
            row = connection.execute(text(f"{SELECT_CLAIM} for update"), {"study": self.namespace})
            claim_version = row.scalar_one()
        except BaseException:
            connection.close()
            raise
        return connection, claim_version

    @property
    def transient_errors(self) -> tuple[type[Exception], ...]:
        """Exceptions raised when the database is unavailable."""
        from optuna.exceptions import StorageInternalError
        from sqlalchemy.exc import DBAPIError

        return StorageInternalError, DBAPIError

    def call_with_retry(self, operation: Callable[[], T], timeout: float = RETRY_TIMEOUT) -> T:
        """Repeat an operation while the database is unavailable; it must be safe to run twice."""
        start, was_reported = time.monotonic(), False
        while True:
            try:
                return operation()
            except self.transient_errors as error:
                waited, reason = time.monotonic() - start, root_cause_message(error)
                if not is_connection_error(error) or waited > timeout or self.should_abort():
                    raise StoreError(
                        f"The database at {redact_url(self.url)} is unavailable: {reason}. Nothing is lost: run the "
                        "same command again when it is available."
                    ) from error
                if not was_reported:
                    logger.warning(f"The database at {redact_url(self.url)} is unavailable ({reason}); waiting for it.")
                    was_reported = True
                time.sleep(min(0.2 + waited / 10, 5))

    def check_intact(self) -> None:
        """Do nothing: the database guards its own files."""

    def open_reader(self) -> TrialReader:
        """Return a reader of all trials of this study that does not use Optuna."""
        return PostgresReader(self.execute, self.study_prefix)

    def open_storage(self) -> Any:
        """Open the database as an Optuna storage."""
        return self.call_with_retry(lambda: self.optuna_storage, timeout=10)
