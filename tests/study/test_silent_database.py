"""A database whose machine or network goes away without a word: connections are asked for signs of life.

The kernel asks, and one that does not answer cannot be had here: so it is looked at what ours was told to do.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import Engine, make_url

from hqlt_lab.study.store import Store

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
