"""Connections to a database: TCP keepalive detects a silent server, and connections are closed at the end of a session.

The kernel sends the keepalive probes, and a server that does not answer cannot be simulated here.  So the tests check
the options of the socket.
"""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import Engine, NullPool, create_engine, make_url, text

from hqlt_lab.study.ledger.ledger import Ledger
from hqlt_lab.study.ledger.study_store import StudyStore

from .test_ledger import CELL

OPTIONS = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")


def pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError), source, target:
        while data := source.recv(2**16):
            target.sendall(data)
        target.shutdown(socket.SHUT_RDWR)


def relay(listener: socket.socket, path: Path) -> None:
    """Forward every TCP connection to a Unix socket."""
    with suppress(OSError):
        while True:
            client, server = listener.accept()[0], socket.socket(socket.AF_UNIX)
            server.connect(str(path))
            for ends in ((client, server), (server, client)):
                threading.Thread(target=pump, args=ends, daemon=True).start()


@pytest.fixture
def tcp_url(postgres) -> Iterator[str]:
    """URL of a database over TCP; the tests' server itself listens on a Unix socket, which has no keepalive."""
    url = make_url(postgres.create_database())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        path = Path(str(url.query["host"])) / ".s.PGSQL.5432"
        threading.Thread(target=relay, args=(listener, path), daemon=True).start()
        tcp_url = url.set(host="127.0.0.1", port=listener.getsockname()[1]).difference_update_query(["host"])
        yield tcp_url.render_as_string(hide_password=False)
        listener.shutdown(socket.SHUT_RDWR)


def detection_seconds(engine: Engine) -> tuple[float, float]:
    """Return the seconds until a silent server is detected, while waiting for data and while sending."""
    with engine.connect() as connection:
        descriptor = connection.connection.driver_connection.fileno()
        with socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as tcp_socket:
            assert tcp_socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            values = [tcp_socket.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in OPTIONS]
    idle, interval, count, user_timeout_ms = values
    return idle + interval * count, user_timeout_ms / 1000


def test_silent_server_is_detected_within_half_a_minute(tmp_path, tcp_url, monkeypatch):
    monkeypatch.setenv("HQLT_STORE", tcp_url)
    backend = StudyStore(tmp_path, "study").backend
    for engine in (backend.engine, backend.optuna_storage.engine):
        while_waiting, while_sending = detection_seconds(engine)
        assert 0 < while_waiting <= 30 and 0 < while_sending <= 30  # 0 is the default of the kernel, which is hours


def test_connections_are_closed_at_the_end_of_a_session(tmp_path, postgres, monkeypatch):
    monkeypatch.setenv("HQLT_STORE", postgres.create_database())
    store = StudyStore(tmp_path, "study")
    with store.session():
        ledger = Ledger(store)
        ledger.begin_attempt("a", ledger.ask_trial("a", {}), CELL)
    count_connections = (
        "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    )
    with create_engine(store.backend.url, poolclass=NullPool).connect() as connection:
        deadline = time.monotonic() + 10
        while (num_open := connection.execute(text(count_connections)).scalar_one()) and time.monotonic() < deadline:
            time.sleep(0.05)  # the server notices a closed connection a moment later
    assert num_open == 0 and store.backend.heartbeat is None
    assert len(Ledger(store).get_attempts("k")) == 1  # a later call opens a new connection
