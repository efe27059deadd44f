"""Connections to a database: asked for signs of life where it goes away without a word, and closed by who leaves.

The kernel asks, and one that does not answer cannot be had here: so it is looked at what ours was told to do.
"""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import Engine, NullPool, create_engine, make_url, text

from hqlt_lab.study.ledger import Ledger
from hqlt_lab.study.store import Store

from .test_ledger import CELL

OPTIONS = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")


def pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError), source, target:
        while said := source.recv(2**16):
            target.sendall(said)
        target.shutdown(socket.SHUT_RDWR)


def relay(door: socket.socket, path: Path) -> None:
    """Hand every connection on to a socket that is a file."""
    with suppress(OSError):
        while True:
            caller, server = door.accept()[0], socket.socket(socket.AF_UNIX)
            server.connect(str(path))
            for ends in ((caller, server), (server, caller)):
                threading.Thread(target=pump, args=ends, daemon=True).start()


@pytest.fixture
def over_the_network(postgres) -> Iterator[str]:
    """The tests' own server listens at a file alone, where nobody falls silent."""
    url = make_url(postgres.database())
    with socket.create_server(("127.0.0.1", 0)) as door:
        path = Path(str(url.query["host"])) / ".s.PGSQL.5432"
        threading.Thread(target=relay, args=(door, path), daemon=True).start()
        there = url.set(host="127.0.0.1", port=door.getsockname()[1]).difference_update_query(["host"])
        yield there.render_as_string(hide_password=False)
        door.shutdown(socket.SHUT_RDWR)


def until_noticed(engine: Engine) -> tuple[float, float]:
    """Seconds until a silent peer is given up: while we listen, and while what we said stays unheard."""
    with engine.connect() as connection:
        number = connection.connection.driver_connection.fileno()
        with socket.fromfd(number, socket.AF_INET, socket.SOCK_STREAM) as wire:
            assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            told = [wire.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in OPTIONS]
    idle, interval, count, unheard = told
    return idle + interval * count, unheard / 1000


def test_a_connection_that_falls_silent_is_noticed_within_half_a_minute(tmp_path, over_the_network, monkeypatch):
    monkeypatch.setenv("HQLT_STORE", over_the_network)
    book = Store(tmp_path, "study").book
    for engine in (book.engine, book.optuna.engine):
        listening, speaking = until_noticed(engine)
        assert 0 < listening <= 30 and 0 < speaking <= 30  # 0: the kernel's own, which is hours


def test_who_leaves_a_study_holds_no_connection_to_it(tmp_path, postgres, monkeypatch):
    monkeypatch.setenv("HQLT_STORE", postgres.database())
    store = Store(tmp_path, "study")
    with store.owned():
        ledger = Ledger(store)
        ledger.begin("a", ledger.ask("a", {}), CELL)
    others = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    with create_engine(store.book.url, poolclass=NullPool).connect() as asking:
        until = time.monotonic() + 10
        while (held := asking.execute(text(others)).scalar_one()) and time.monotonic() < until:
            time.sleep(0.05)  # the server notices a moment later
    assert held == 0 and store.book.pulse is None
    assert len(Ledger(store).of("k")) == 1  # whoever asks again is answered
