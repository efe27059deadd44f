"""Health checks that determine within seconds whether a tracking store is available.

MLflow waits 20 seconds for a locked SQLite file and minutes for a server that is down, and SQLite creates a new empty
file if the database was moved away.  So the store is checked before it is used.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from hqlt_lab.errors import StoreError

LOCK_TIMEOUT = 1.0  # seconds to wait for a locked database


class TrackerUnavailable(StoreError):
    """The tracking store is unavailable at the moment."""


def check_sqlite_file(file: Path) -> None:
    """Raise an error if a SQLite database is missing or locked."""
    if not has_content(file):
        raise TrackerUnavailable(f"{file} does not exist")
    with closing(sqlite3.connect(file, timeout=LOCK_TIMEOUT, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        database.execute("ROLLBACK")


def check_server(uri: str) -> None:
    """Raise an error if a server does not respond.  Error statuses count as a response, except those of a proxy."""
    try:
        urlopen(f"{uri.rstrip('/')}/health", timeout=3 * LOCK_TIMEOUT).close()
    except HTTPError as response:
        response.close()
        if response.code in (502, 503, 504):  # from a proxy in front of a server that is down
            raise


def check_database(uri: str) -> None:
    """Raise an error if a database does not accept a connection."""
    from sqlalchemy import NullPool, create_engine

    create_engine(uri, poolclass=NullPool).connect().close()


def has_content(file: Path) -> bool:
    """Return whether a file exists and is not empty; SQLite creates an empty file if there is none."""
    return file.exists() and file.stat().st_size > 0
