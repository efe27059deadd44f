"""The ledger in PostgreSQL: who may begin a cell, who counts as dead, what happens when the database is away."""

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
from hqlt_lab.study.address import address, shown
from hqlt_lab.study.database import Database, LostTurn
from hqlt_lab.study.ledger import Ledger
from hqlt_lab.study.pulse import Pulse, here, ourselves, seen_dead
from hqlt_lab.study.store import Store

from .test_ledger import CELL


@pytest.fixture
def shared(tmp_path, postgres, monkeypatch):
    """The same study as many times as it is asked for."""
    url = postgres.database()
    monkeypatch.setenv("HQLT_STORE", url)

    def store() -> Store:
        return Store(tmp_path, "study")

    store.url = url.replace("postgresql://", "postgresql+psycopg://")
    return store


def as_another(store: Store, who: str) -> Ledger:
    """A ledger that writes in somebody else's name, who joined this study."""
    store.book.who = who
    store.book.say("insert into hqlt_workers values (:study, :who, 'node 7', now(), now())", who=who)
    return Ledger(store)


def test_a_cell_is_begun_by_one_of_many(shared):
    """Four at once, each with connections of its own: every cell is begun once."""
    keys, begun = [f"cell {number}" for number in range(24)], Counter()

    def work() -> None:
        store = shared()
        with store.owned():
            ledger = Ledger(store)
            while True:
                with ledger.claiming():
                    waiting = [key for key in keys if not ledger.of(key)]
                    if not waiting:
                        return
                    ledger.begin("a", ledger.ask("a", {}), CELL | {"key": waiting[0]})
                begun[waiting[0]] += 1

    with shared().owned():
        everyone = [threading.Thread(target=work) for _ in range(4)]
        for one in everyone:
            one.start()
        for one in everyone:
            one.join(60)
        assert begun == dict.fromkeys(keys, 1)
        assert all(len(Ledger(shared()).of(key)) == 1 for key in keys)


def test_whoever_loses_the_lock_is_told(shared):
    store = shared()
    with store.owned():
        ledger = Ledger(store)
        with pytest.raises(LostTurn, match="went away while it was asked"), ledger.claiming():
            killed = "select pg_terminate_backend(pid) from pg_stat_activity where state = 'idle in transaction'"
            with create_engine(shared.url, poolclass=NullPool).begin() as other:
                assert other.execute(text(killed)).scalar_one()
        with ledger.claiming():  # and the next turn is an ordinary one
            ledger.begin("a", ledger.ask("a", {}), CELL)


def test_the_cells_of_the_dead_wait_again_and_those_of_the_living_do_not(shared):
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    dead, elsewhere = f"{here()}/{int(ended.stdout)}/1/a", "another-machine.1/77/1/a"
    first, second, ours = shared(), shared(), shared()
    with first.owned(), second.owned(), ours.owned():
        for store, who, key in ((first, dead, "of the dead"), (second, elsewhere, "of the living")):
            ledger = as_another(store, who)
            ledger.begin("a", ledger.ask("a", {}), CELL | {"key": key})
        ledger = Ledger(ours)
        assert ledger.orphans()
        with ledger.claiming():
            ledger.recover()
        assert [ledger.of(key)[-1].status for key in ("of the dead", "of the living")] == ["interrupted", "running"]
        assert not ledger.orphans()


def test_silence_is_judged_by_one_who_was_in_touch(shared):
    other, ours = shared(), shared()
    with other.owned(), ours.owned():
        as_another(other, "another-machine.1/77/1/a")
        silent = "update hqlt_workers set beat = now() - interval '10 minutes' where who = 'another-machine.1/77/1/a'"
        ours.book.say(silent)
        assert ours.book.living()("another-machine.1/77/1/a")  # we have just come ourselves
        ours.book.pulse.steady -= 1000
        assert not ours.book.living()("another-machine.1/77/1/a")
        ours.book.pulse.steady = float("inf")  # the last sign of ours failed
        assert ours.book.living()("another-machine.1/77/1/a")


def test_what_was_taken_over_is_not_told_twice(shared):
    slow, judge = shared(), shared()
    with slow.owned(), judge.owned():
        ledger = as_another(slow, "another-machine.1/77/1/a")
        attempt = ledger.begin("a", ledger.ask("a", {}), CELL)
        slow.book.say("delete from hqlt_workers where who = 'another-machine.1/77/1/a'")
        taken = Ledger(judge)
        with taken.claiming():
            taken.recover()
            again = taken.begin("a", taken.ask("a", {}), CELL)
        ledger.report(attempt, {10: 0.0})
        assert not ledger.hopeless(attempt)  # what it tells afterwards does not count
        assert ledger.finish(attempt, "done", 1.0).status == "interrupted"
        assert taken.finish(again, "done", 1.0).status == "done"
        assert [one.status for one in Ledger(judge).of("k")] == ["interrupted", "done"]


@pytest.mark.slow
def test_a_database_that_is_killed_is_waited_for(shared, postgres):
    store, told = shared(), []
    with store.owned():
        store.book.tell = told.append
        ledger = Ledger(store)
        attempt = ledger.begin("a", ledger.ask("a", {}), CELL)
        postgres.kill()
        back = threading.Timer(1.5, postgres.start)
        back.start()
        ledger.finish(attempt, "done", 1.0)
        back.join()
        with ledger.claiming():
            assert [one.status for one in Ledger(shared()).of("k")] == ["done"]
    assert len(told) == 1 and "is away" in told[0]


def test_a_database_that_is_not_there_is_told_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("HQLT_STORE", f"postgresql://user:secret@/lab?host={tmp_path}")
    monkeypatch.setattr("hqlt_lab.study.database.PATIENCE", 0.1)
    book = Store(tmp_path, "study").book
    book.hurried = lambda: True
    with (
        pytest.raises(StoreError, match=r"database at postgresql://user@/lab\S* cannot be used") as told,
        book.owned(),
    ):
        pass
    assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    "url, sentence",
    [
        ("sqlite:///here.db", "need PostgreSQL, not sqlite"),
        ("mysql://host/db", "need PostgreSQL, not mysql"),
        ("nonsense", "this is no address"),
    ],
)
def test_other_addresses_are_refused(url, sentence, tmp_path):
    with pytest.raises(StoreError, match=sentence):
        address(url, "", tmp_path / "store.json")


def test_the_password_is_in_no_file_and_no_name(shared, tmp_path):
    store = shared()
    with store.owned():
        written = store.book.file.read_text()
    assert "secret" not in shown(address("postgres://me:secret@host:5433/lab", "", tmp_path))
    assert shown(address("postgres://me:secret@host:5433/lab", "", tmp_path)) == "postgresql://me@host:5433/lab"
    in_query = address("postgresql://me@host/lab?password=secret&sslpassword=secret&sslmode=require", "", tmp_path)
    assert shown(in_query) == "postgresql://me@host/lab?sslmode=require"
    assert json.loads(written)["sign"].startswith("study-")


def test_a_study_keeps_its_place(shared, tmp_path, monkeypatch):
    with shared().owned():
        sign = shared().book.sign
    monkeypatch.delenv("HQLT_STORE")
    assert isinstance(shared().book, Database) and shared().book.sign == sign
    with pytest.raises(StoreError, match=r"kept in a database. If you trust it: export HQLT_STORE=postgresql://"):
        Ledger(shared())  # a folder may come from anybody: it does not say where we connect to
    monkeypatch.setenv("HQLT_STORE", "postgresql://elsewhere/lab")
    with pytest.raises(StoreError, match=r"this study is kept in .* names postgresql://elsewhere/lab"):
        shared()


def test_a_study_in_a_file_says_how_it_moves_to_a_database(tmp_path, monkeypatch):
    store = Store(tmp_path, "study")
    with store.owned():
        Ledger(store).ask("a", {})
    monkeypatch.setenv("HQLT_STORE", "postgresql://host/lab")
    with pytest.raises(StoreError, match=r"kept in a file, and .* names a database\. Unset it; or move the file away"):
        Store(tmp_path, "study").owned().__enter__()


def test_two_studies_in_one_database_do_not_see_each_other(tmp_path, shared):
    mine, other = shared(), Store(tmp_path / "elsewhere", "study")
    with mine.owned(), other.owned():
        ledger = Ledger(mine)
        ledger.begin("a", ledger.ask("a", {}), CELL)
        assert Ledger(other).of("k") == [] and len(mine.book.workers()) == len(other.book.workers()) == 1
        assert mine.others() == []


def test_a_large_study_is_read_with_as_few_questions_as_a_small_one(shared):
    """Seconds for 10,000 cells are measured by benchmarks/many_cells.py; this sees that they cannot be minutes."""
    asked = []

    def note(connection, cursor, statement, *_) -> None:
        asked.append(statement)

    def questions() -> int:
        event.listen(Engine, "before_cursor_execute", note)
        asked.clear()
        Ledger(shared())
        event.remove(Engine, "before_cursor_execute", note)
        return len(asked)

    with (store := shared()).owned():
        ledger, counts = Ledger(store), []
        for cells in (range(2), range(2, 30)):
            for number in cells:
                attempt = ledger.begin("a", ledger.ask("a", {}), CELL | {"key": str(number)})
                ledger.finish(attempt, "done", 1.0, metrics={})
            counts.append(questions())
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize("told", ["soon", "0", "-5", "nan", "inf"])
def test_a_grace_that_is_no_time_is_told(told, tmp_path, monkeypatch):
    monkeypatch.setenv("HQLT_STORE", "postgresql://lab@nowhere/lab")
    monkeypatch.setenv("HQLT_GRACE", told)
    with pytest.raises(StoreError, match=rf"\$HQLT_GRACE: seconds of silence are needed, .* got '{told}'"):
        Store(tmp_path, "study")


@pytest.mark.parametrize("other", ["me:secret@host:5432/lab", "you@host/lab?sslmode=require"])
def test_one_database_has_many_addresses(other, tmp_path):
    address(f"postgresql://{other}", "postgresql://host/lab", tmp_path)
    with pytest.raises(StoreError, match="this study is kept in"):
        address(f"postgresql://{other.replace('host', 'elsewhere')}", "postgresql://host/lab", tmp_path)


@pytest.mark.parametrize("note", ['{"sign": ', '{"sign": "study-1"}'])
def test_a_damaged_note_of_the_database_is_named(note, tmp_path):
    (tmp_path / "studies/study").mkdir(parents=True)
    (tmp_path / "studies/study/store.json").write_text(note)
    with pytest.raises(StoreError, match=r"store.json: it is damaged"):
        Store(tmp_path, "study")


def test_what_is_forgotten_while_one_joins_is_seen(shared):
    store, other = shared(), shared()
    with store.owned():
        ledger = Ledger(store)
        ledger.finish(ledger.begin("a", ledger.ask("a", {}), CELL), "done", 1.0)
        joining = Ledger(other)
        ledger.forget(["k"])
        joining.read_forgotten()
        assert joining.of("k") == [] and ledger.of("k") == []


def test_a_step_of_the_clock_kills_nobody(monkeypatch):
    who, _ = ourselves()
    monkeypatch.setattr("psutil.Process.create_time", lambda self: 0.0)  # it follows the clock
    assert not seen_dead(who)


def test_signs_of_life():
    who, name = ourselves()
    assert not seen_dead(who) and f"process {os.getpid()}" in name
    where, number, started, _ = who.split("/")
    assert seen_dead(f"{where}/{number}/{int(started) - 1}/a")  # its number was given to another one
    assert not seen_dead(f"another-machine.1/{number}/1/a")
    beats: list[float] = []

    def beat() -> None:
        beats.append(time.monotonic())
        if len(beats) == 2:
            raise OSError("away")

    pulse = Pulse(beat, every=0.05)
    with pulse:
        time.sleep(0.13)
        failed = pulse.steady_for()
        time.sleep(0.1)
        after = pulse.steady_for()
    assert failed < 0 < after < 0.2 and len(beats) >= 3
