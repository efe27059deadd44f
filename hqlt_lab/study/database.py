"""The ledger in PostgreSQL, where several programs on several machines share the cells of a study.

    hqlt_turns      a row per study.  Whoever begins a cell locks it, so that no two begin the same; its number tells
                    whether anybody else has begun one since the last look
    hqlt_workers    a row per program, with the time of its last sign of life by the database's clock
    Optuna's own    every attempt, as in a journal; all names begin with the study's own sign

A program that was killed is found out at once on the same machine, and elsewhere by its silence; its attempts are then
closed as interrupted.  Nobody is judged by one who was out of touch with the database himself: silence may be the
database's.

The address is told without its password, which belongs into the environment: $HQLT_STORE, PGPASSWORD, ~/.pgpass.
"""

import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hqlt_lab.errors import StoreError
from hqlt_lab.study.address import address, noted, shown, signed
from hqlt_lab.study.connection import CONNECTIONS, away, cause, engine_for
from hqlt_lab.study.pulse import Pulse, grace, ourselves, seen_dead
from hqlt_lab.study.reader import DatabaseReader, Reader

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

FILE = "store.json"
PATIENCE = 600.0  # seconds that the database may be away
TURN = 60  # seconds that beginning a cell may take before the lock is taken away
T = TypeVar("T")
TABLES = (
    "create table if not exists hqlt_turns (study text primary key, turn bigint not null)",
    "create table if not exists hqlt_workers (study text, who text, name text not null, since timestamptz not null, "
    "beat timestamptz not null, primary key (study, who))",
)


class LostTurn(StoreError):
    """The lock was taken away while a cell was begun: somebody else may have begun it too."""

    def __init__(self) -> None:
        super().__init__("The database went away while it was asked. Nothing is lost: run the same command again.")


class Database:
    """Where a study's attempts are written down, for all who share it."""

    shared = True

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.file = folder, folder / FILE
        told = noted(self.file)
        self.sign: str | None = told.get("sign")
        self.url, self.named = address(url, told.get("url", ""), self.file), bool(url)
        self.who, self.turn, self.grace = "", -1, grace()
        self.pulse: Pulse | None = None
        self.tell: Callable[[str], None] = lambda sentence: None
        self.hurried: Callable[[], bool] = lambda: False

    @property
    def exists(self) -> bool:
        return self.sign is not None

    @property
    def prefix(self) -> str:
        return f"{self.sign}/"

    @cached_property
    def engine(self) -> "Engine":
        """Made when it is first needed; its connections are closed when nobody needs it any more.

        A folder may come from anybody, and whoever connects shows a password: so where to is not the folder's to say.
        """
        if not self.named:
            raise StoreError(
                f"{self.folder}: this study is kept in a database. If you trust it: export HQLT_STORE={shown(self.url)}"
            )
        engine = engine_for(self.url)
        weakref.finalize(self, engine.dispose)
        return engine

    @cached_property
    def optuna(self) -> Any:
        """The same for Optuna's own connections; its tables are made if they are not there."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.engine  # noqa: B018  # says what is missing in our words
        address = self.url.render_as_string(hide_password=False)
        storage = optuna.storages.RDBStorage(address, engine_kwargs=CONNECTIONS)
        weakref.finalize(self, storage.engine.dispose)
        return storage

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Join those who are at work here."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"{self.folder}: nothing can be written here ({error.strerror}). Name another folder: --runs FOLDER"
            ) from error
        self.patiently(self.make_tables, patience=10)
        self.sign = self.sign or signed(self.file, self.url)
        self.who, name = ourselves()
        for words in (FIRST_TURN, LONG_GONE, BEAT):
            self.patiently(lambda words=words: self.say(words, who=self.who, name=name))  # type: ignore[misc]
        try:
            with Pulse(lambda: self.say(BEAT, who=self.who, name=name), self.grace / 6) as self.pulse:
                yield
        finally:
            with suppress(*self.troubles):  # otherwise it is found out by our silence
                self.say(LEAVE, who=self.who)
            self.pulse = None
            self.hang_up()

    def hang_up(self) -> None:
        """Close all connections; whoever asks again gets new ones."""
        for name in {"engine", "optuna"} & vars(self).keys():  # those that were made
            held = vars(self)[name]
            (held if name == "engine" else held.engine).dispose()

    def make_tables(self) -> None:
        """Under a lock of its own: two programs that both make them would clash."""
        from sqlalchemy import text

        with self.engine.begin() as connection:
            connection.execute(text("select pg_advisory_xact_lock(726431)"))
            for table in TABLES:
                connection.execute(text(table))
            self.optuna  # noqa: B018

    def say(self, words: str, **told: Any) -> list[Any]:
        """One statement about this study, and what it answers."""
        from sqlalchemy import text

        with self.engine.begin() as connection:
            answer = connection.execute(text(words), {"study": self.sign, **told})
            return list(answer) if answer.returns_rows else []

    def workers(self, but_us: bool = False) -> list[str]:
        """Who is at work here now, for people."""
        if not self.exists:
            return []
        alive = self.living()
        rows = self.patiently(lambda: self.say(NAMES))
        return [name for who, name in rows if alive(who) and not (but_us and who == self.who)]

    def living(self) -> Callable[[str], bool]:
        """Whether the one who began an attempt is still there."""
        rows = self.patiently(lambda: self.say(SILENT)) if self.exists else []
        entitled = self.pulse is None or self.pulse.steady_for() > self.grace
        alive = {who for who, silent in rows if not (entitled and silent > self.grace) and not seen_dead(who)}
        return lambda who: who in alive

    @contextmanager
    def claiming(self) -> Iterator[bool]:
        """Nobody else begins cells in here.  True: others may have begun some since the last time."""
        from sqlalchemy import text

        connection, turn = self.patiently(self.locked)
        with connection:
            yield turn != self.turn
            try:
                connection.execute(text(NEXT_TURN), {"study": self.sign})
                connection.commit()
            except self.troubles as error:
                raise LostTurn from error
            self.turn = turn + 1

    def locked(self) -> "tuple[Connection, int]":
        """A connection that holds the lock of the study, until it is closed or takes too long; and whose turn it is."""
        from sqlalchemy import text

        connection = self.engine.connect()
        try:
            for name in ("lock_timeout", "idle_in_transaction_session_timeout"):
                connection.exec_driver_sql(f"set local {name} = '{TURN}s'")
            turn = connection.execute(text(f"{TURN_OF} for update"), {"study": self.sign}).scalar_one()
        except BaseException:
            connection.close()
            raise
        return connection, turn

    @property
    def troubles(self) -> tuple[type[Exception], ...]:
        """What is raised when the database is away."""
        from optuna.exceptions import StorageInternalError
        from sqlalchemy.exc import DBAPIError

        return StorageInternalError, DBAPIError

    def patiently(self, ask: Callable[[], T], patience: float = PATIENCE) -> T:
        """Ask again while the database is away; what is asked may have been done already."""
        began, told = time.monotonic(), False
        while True:
            try:
                return ask()
            except self.troubles as error:
                waited, why = time.monotonic() - began, cause(error)
                if not away(error) or waited > patience or self.hurried():
                    raise StoreError(
                        f"The database at {shown(self.url)} cannot be used: {why}. Nothing is lost: run the same "
                        "command again when it can be."
                    ) from error
                if not told:
                    self.tell(f"The database at {shown(self.url)} is away ({why}); waiting for it.")
                    told = True
                time.sleep(min(0.2 + waited / 10, 5))

    def reader(self) -> Reader:
        """One who reads all that is written here, again and again, without Optuna."""
        return DatabaseReader(self.say, self.prefix)

    def storage(self) -> Any:
        """Optuna's view of it."""
        return self.patiently(lambda: self.optuna, patience=10)


FIRST_TURN = "insert into hqlt_turns values (:study, 0) on conflict do nothing"
TURN_OF = "select turn from hqlt_turns where study = :study"
NEXT_TURN = "update hqlt_turns set turn = turn + 1 where study = :study"
BEAT = (
    "insert into hqlt_workers values (:study, :who, :name, now(), now()) "
    "on conflict (study, who) do update set beat = now()"
)
SILENT = "select who, extract(epoch from now() - beat) from hqlt_workers where study = :study"
NAMES = "select who, name from hqlt_workers where study = :study order by since"
LEAVE = "delete from hqlt_workers where study = :study and who = :who"
LONG_GONE = "delete from hqlt_workers where beat < now() - interval '7 days'"
