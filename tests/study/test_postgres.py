"""Ledger in PostgreSQL: claims of cells, detection of dead workers, and an unavailable database."""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest
from sqlalchemy import Engine, NullPool, create_engine, event, text

from hqlt_lab.errors import StoreError
from hqlt_lab.study.ledger.database_url import redact_url, resolve_url
from hqlt_lab.study.ledger.ledger import Ledger
from hqlt_lab.study.ledger.postgres import ClaimLost, PostgresBackend
from hqlt_lab.study.ledger.study_store import StudyStore
from hqlt_lab.study.ledger.worker_heartbeat import HeartbeatThread, host_id, is_known_dead, process_identity

from .study_folder import wait_until
from .test_ledger import CELL

REMOTE_WORKER = "another-machine.1/77/1/a"


@pytest.fixture
def open_store(tmp_path, postgres, monkeypatch):
    """Return a function that opens the same study in the same database, as another process would."""
    url = postgres.create_database()
    monkeypatch.setenv("HQLT_STORE", url)

    def open_store() -> StudyStore:
        return StudyStore(tmp_path, "study")

    open_store.url = url.replace("postgresql://", "postgresql+psycopg://")
    return open_store


def open_ledger_as(store: StudyStore, worker_id: str) -> Ledger:
    """Return a ledger that writes with the id of another worker, which has joined the study."""
    store.backend.worker_id = worker_id
    store.backend.execute(
        "insert into hqlt_heartbeats values (:study, :worker_id, 'node 7', now(), now())", worker_id=worker_id
    )
    return Ledger(store)


def test_concurrent_workers_begin_each_cell_once(open_store):
    """Four threads, each with its own connections."""
    keys, begun = [f"cell {number}" for number in range(24)], Counter()

    def claim_cells() -> None:
        store = open_store()
        with store.session():
            ledger = Ledger(store)
            while True:
                with ledger.claim_lock():
                    waiting = [key for key in keys if not ledger.get_attempts(key)]
                    if not waiting:
                        return
                    ledger.begin_attempt("a", ledger.ask_trial("a", {}), CELL | {"key": waiting[0]})
                begun[waiting[0]] += 1

    with open_store().session():
        threads = [threading.Thread(target=claim_cells) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert begun == dict.fromkeys(keys, 1)
        assert all(len(Ledger(open_store()).get_attempts(key)) == 1 for key in keys)


def test_lost_claim_lock_raises_claim_lost(open_store):
    store = open_store()
    with store.session():
        ledger = Ledger(store)
        with pytest.raises(ClaimLost, match="connection to the database was lost"), ledger.claim_lock():
            kill_connection = (
                "select pg_terminate_backend(pid) from pg_stat_activity where state = 'idle in transaction'"
            )
            with create_engine(open_store.url, poolclass=NullPool).begin() as connection:
                assert connection.execute(text(kill_connection)).scalar_one()
        with ledger.claim_lock():  # the next claim works as usual
            ledger.begin_attempt("a", ledger.ask_trial("a", {}), CELL)


def test_cells_of_dead_workers_wait_again_and_those_of_live_ones_do_not(open_store):
    exited = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    dead = f"{host_id()}/{int(exited.stdout)}/1/a"
    first, second, own = open_store(), open_store(), open_store()
    with first.session(), second.session(), own.session():
        for store, worker_id, key in ((first, dead, "of the dead"), (second, REMOTE_WORKER, "of the living")):
            ledger = open_ledger_as(store, worker_id)
            ledger.begin_attempt("a", ledger.ask_trial("a", {}), CELL | {"key": key})
        ledger = Ledger(own)
        assert ledger.has_orphans()
        with ledger.claim_lock():
            ledger.close_orphans()
        statuses = [ledger.get_attempts(key)[-1].status for key in ("of the dead", "of the living")]
        assert statuses == ["interrupted", "running"]
        assert not ledger.has_orphans()


def test_silent_worker_is_declared_dead_only_after_a_healthy_grace_period(open_store):
    other, own = open_store(), open_store()
    with other.session(), own.session():
        open_ledger_as(other, REMOTE_WORKER)
        own.backend.execute(
            "update hqlt_heartbeats set last_heartbeat = now() - interval '10 minutes' where worker_id = :worker_id",
            worker_id=REMOTE_WORKER,
        )
        assert own.backend.liveness_check()(REMOTE_WORKER)  # our own session has only just begun
        own.backend.heartbeat.healthy_since -= 1000
        assert not own.backend.liveness_check()(REMOTE_WORKER)
        own.backend.heartbeat.healthy_since = float("inf")  # our own last heartbeat failed
        assert own.backend.liveness_check()(REMOTE_WORKER)


def test_result_of_an_attempt_that_another_worker_closed_is_not_recorded(open_store):
    slow, own = open_store(), open_store()
    with slow.session(), own.session():
        slow_ledger = open_ledger_as(slow, REMOTE_WORKER)
        slow_attempt = slow_ledger.begin_attempt("a", slow_ledger.ask_trial("a", {}), CELL)
        slow.backend.execute("delete from hqlt_heartbeats where worker_id = :worker_id", worker_id=REMOTE_WORKER)
        ledger = Ledger(own)
        with ledger.claim_lock():
            ledger.close_orphans()
            attempt = ledger.begin_attempt("a", ledger.ask_trial("a", {}), CELL)
        slow_ledger.report_values(slow_attempt, {10: 0.0})
        assert not slow_ledger.should_prune(slow_attempt)  # values reported after the end are ignored
        assert slow_ledger.finish_attempt(slow_attempt, "done", 1.0).status == "interrupted"
        assert ledger.finish_attempt(attempt, "done", 1.0).status == "done"
        assert [attempt.status for attempt in Ledger(own).get_attempts("k")] == ["interrupted", "done"]


@pytest.mark.slow
def test_killed_database_is_retried_until_it_is_back(open_store, postgres, caplog):
    store = open_store()
    with store.session():
        ledger = Ledger(store)
        attempt = ledger.begin_attempt("a", ledger.ask_trial("a", {}), CELL)
        postgres.kill()
        restart = threading.Timer(1.5, postgres.start)
        restart.start()
        ledger.finish_attempt(attempt, "done", 1.0)
        restart.join()
        with ledger.claim_lock():
            assert [attempt.status for attempt in Ledger(open_store()).get_attempts("k")] == ["done"]
    assert len(caplog.messages) == 1 and "is unavailable" in caplog.messages[0]


def test_unreachable_database_is_an_error_without_the_password(tmp_path, monkeypatch):
    monkeypatch.setenv("HQLT_STORE", f"postgresql://user:secret@/lab?host={tmp_path}")
    monkeypatch.setattr("hqlt_lab.study.ledger.postgres.RETRY_TIMEOUT", 0.1)
    backend = StudyStore(tmp_path, "study").backend
    backend.should_abort = lambda: True
    with (
        pytest.raises(StoreError, match=r"database at postgresql://user@/lab\S* is unavailable") as raised,
        backend.session(),
    ):
        pass
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "url, message",
    [
        ("sqlite:///here.db", "requires PostgreSQL, not sqlite"),
        ("mysql://host/db", "requires PostgreSQL, not mysql"),
        ("nonsense", "this is not a database URL"),
    ],
)
def test_url_of_another_database_system_is_an_error(url, message, tmp_path):
    with pytest.raises(StoreError, match=message):
        resolve_url(url, "", tmp_path / "store.json")


def test_password_is_neither_in_the_store_file_nor_in_the_redacted_url(open_store, tmp_path):
    store = open_store()
    with store.session():
        note = store.backend.file.read_text()
    in_user_info = resolve_url("postgres://me:secret@host:5433/lab", "", tmp_path)
    assert redact_url(in_user_info) == "postgresql://me@host:5433/lab"
    in_query = resolve_url("postgresql://me@host/lab?password=secret&sslpassword=secret&sslmode=require", "", tmp_path)
    assert redact_url(in_query) == "postgresql://me@host/lab?sslmode=require"
    assert json.loads(note)["namespace"].startswith("study-")


def test_study_stays_in_its_database(open_store, tmp_path, monkeypatch):
    with open_store().session():
        namespace = open_store().backend.namespace
    monkeypatch.delenv("HQLT_STORE")
    assert isinstance(open_store().backend, PostgresBackend) and open_store().backend.namespace == namespace
    with pytest.raises(StoreError, match=r"stored in a database. If you trust it: export HQLT_STORE=postgresql://"):
        Ledger(open_store())  # a folder from an untrusted source must not choose where we connect to
    monkeypatch.setenv("HQLT_STORE", "postgresql://elsewhere/lab")
    with pytest.raises(StoreError, match=r"this study is stored in .* is postgresql://elsewhere/lab"):
        open_store()


def test_error_for_a_study_in_a_journal_explains_how_to_move_it_to_a_database(tmp_path, monkeypatch):
    store = StudyStore(tmp_path, "study")
    with store.session():
        Ledger(store).ask_trial("a", {})
    monkeypatch.setenv("HQLT_STORE", "postgresql://host/lab")
    with pytest.raises(StoreError, match=r"stored in a file, but .* is set\. Unset it; or move the file away"):
        StudyStore(tmp_path, "study").session().__enter__()


def test_two_studies_in_one_database_do_not_see_each_other(tmp_path, open_store):
    store, other = open_store(), StudyStore(tmp_path / "elsewhere", "study")
    with store.session(), other.session():
        ledger = Ledger(store)
        ledger.begin_attempt("a", ledger.ask_trial("a", {}), CELL)
        assert Ledger(other).get_attempts("k") == []
        assert len(store.backend.list_workers()) == len(other.backend.list_workers()) == 1
        assert store.other_workers() == []


def test_number_of_queries_does_not_grow_with_the_number_of_cells(open_store):
    """benchmarks/many_cells.py measures the seconds for 10,000 cells; this test ensures that they cannot be minutes."""
    statements = []

    def record_statement(connection, cursor, statement, *_) -> None:
        statements.append(statement)

    def count_queries() -> int:
        event.listen(Engine, "before_cursor_execute", record_statement)
        statements.clear()
        Ledger(open_store())
        event.remove(Engine, "before_cursor_execute", record_statement)
        return len(statements)

    with (store := open_store()).session():
        ledger, counts = Ledger(store), []
        for numbers in (range(2), range(2, 30)):
            for number in numbers:
                attempt = ledger.begin_attempt("a", ledger.ask_trial("a", {}), CELL | {"key": str(number)})
                ledger.finish_attempt(attempt, "done", 1.0, metrics={})
            counts.append(count_queries())
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize("text", ["soon", "0", "-5", "nan", "inf"])
def test_invalid_grace_period_is_an_error(text, tmp_path, monkeypatch):
    monkeypatch.setenv("HQLT_STORE", "postgresql://lab@nowhere/lab")
    monkeypatch.setenv("HQLT_GRACE", text)
    with pytest.raises(
        StoreError, match=(f"\\$HQLT_GRACE: a number of seconds without a heartbeat is needed, .* got '{text}'")
    ):
        StudyStore(tmp_path, "study")


@pytest.mark.parametrize("other", ["me:secret@host:5432/lab", "you@host/lab?sslmode=require"])
def test_urls_with_other_credentials_or_options_are_the_same_database(other, tmp_path):
    resolve_url(f"postgresql://{other}", "postgresql://host/lab", tmp_path)
    with pytest.raises(StoreError, match="this study is stored in"):
        resolve_url(f"postgresql://{other.replace('host', 'elsewhere')}", "postgresql://host/lab", tmp_path)


@pytest.mark.parametrize("note", ['{"namespace": ', '{"namespace": "study-1"}'])
def test_damaged_store_file_is_an_error(note, tmp_path):
    (tmp_path / "studies/study").mkdir(parents=True)
    (tmp_path / "studies/study/store.json").write_text(note)
    with pytest.raises(StoreError, match=r"store.json: the file is damaged"):
        StudyStore(tmp_path, "study")


def test_cells_superseded_while_another_worker_joins_are_superseded_for_both(open_store):
    store, other = open_store(), open_store()
    with store.session():
        ledger = Ledger(store)
        ledger.finish_attempt(ledger.begin_attempt("a", ledger.ask_trial("a", {}), CELL), "done", 1.0)
        joining = Ledger(other)
        ledger.supersede_cells(["k"])
        joining.read_generations()
        assert joining.get_attempts("k") == [] and ledger.get_attempts("k") == []


def test_change_of_the_system_clock_does_not_make_a_process_look_dead(monkeypatch):
    worker_id, _ = process_identity()
    monkeypatch.setattr("psutil.Process.create_time", lambda self: 0.0)  # follows the system clock
    assert not is_known_dead(worker_id)


def test_exited_process_is_known_dead_unless_it_is_on_another_machine():
    worker_id, name = process_identity()
    assert not is_known_dead(worker_id) and f"process {os.getpid()}" in name
    host, pid, started_at, _ = worker_id.split("/")
    assert is_known_dead(f"{host}/{pid}/{int(started_at) - 1}/a")  # its PID was given to another process
    assert not is_known_dead(f"another-machine.1/{pid}/1/a")


def test_failed_heartbeat_starts_a_new_healthy_period():
    times: list[float] = []
    may_recover = threading.Event()

    def record_heartbeat() -> None:
        times.append(time.monotonic())
        if len(times) == 2:
            raise OSError("away")
        if len(times) == 3:
            may_recover.wait(60)

    heartbeat = HeartbeatThread(record_heartbeat, interval=0.01)
    with heartbeat:
        wait_until(lambda: len(times) == 3)
        assert heartbeat.seconds_healthy() < 0
        may_recover.set()
        wait_until(lambda: heartbeat.seconds_healthy() > 0)
        assert heartbeat.seconds_healthy() <= time.monotonic() - times[2]
