"""Whether a tracking store can be used now, told within a second or so.

MLflow waits 20 seconds for a locked SQLite file and minutes for a server that is down, and SQLite makes a new empty
file where one was moved away.  So whoever sends knocks first.
"""

import fcntl
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from hqlt_lab.errors import StoreError
from hqlt_lab.secrets import scrubbed

PATIENCE = 1.0  # seconds that a lock may take


class Away(StoreError):
    """The tracking store cannot be used now; later it may."""


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
    lines = scrubbed(str(error)).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:300].rstrip(".")


def has_content(file: Path) -> bool:
    """SQLite makes an empty file where there was none."""
    return file.exists() and file.stat().st_size > 0
