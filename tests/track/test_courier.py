"""The courier: whatever the tracker does, training is not held up, nothing is lost, nothing is repeated."""

import shutil
import socket
import sqlite3
import time
from contextlib import closing

import pytest

from hqlt_lab.track.courier import Courier, catch_up
from hqlt_lab.track.knock import has_content
from hqlt_lab.track.spool import Spool
from hqlt_lab.track.store import Tracker, default_tracker
from tests.track.conftest import Looker, card, end, study_named, train, until


@pytest.fixture
def courier(tracker, study):
    made = Courier(tracker, study, every=0.1)
    yield made
    made.finish(0)
    made.thread.join(30)


def is_there(look, study, steps):
    def seen():
        return look.client.get_experiment_by_name(study.name) and look.runs(study) and len(look.steps(study)) == steps

    return seen


def test_points_arrive_while_a_cell_runs(courier, look, study):
    cell = card(study)
    courier.tell(cell)
    train(cell, 1, 5)
    until(is_there(look, study, 5))
    train(cell, 6, 8)
    until(is_there(look, study, 8))
    end(cell, 8)
    courier.tell(card(study, state="done"))
    assert courier.finish(20) is None and courier.away is None
    assert look.runs(study)[0].info.status == look.runs(study, "study")[0].info.status == "FINISHED"


def test_the_report_is_put_beside_the_study(courier, look, study, tmp_path):
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "curve.svg").write_text("<svg/>")
    (tmp_path / "table.md").write_text("| a |\n")
    courier.report([tmp_path / "table.md", tmp_path / "plots"])
    assert courier.finish(20) is None
    [parent] = look.runs(study, "study")
    assert look.files(parent, "report") == {"report/table.md", "report/curve.svg"}


def test_a_locked_database_holds_up_nobody_and_loses_nothing(courier, look, study, tracker):
    cell = card(study)
    courier.tell(cell)
    train(cell, 1, 3)
    until(is_there(look, study, 3))
    with closing(sqlite3.connect(tracker.database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        slowest = 0.0
        with Spool(cell.folder) as spool:
            for step in range(4, 24):
                started = time.perf_counter()
                spool.add(step, {"train/loss": 1.0})
                courier.tell(card(study))
                slowest = max(slowest, time.perf_counter() - started)
                time.sleep(0.1)
        assert slowest < 0.1
        until(lambda: courier.away and "locked" in courier.away)
        other.execute("ROLLBACK")
    assert courier.finish(30) is None
    assert look.steps(study) == list(range(1, 24))


def test_a_database_that_is_moved_away_and_back_catches_up(courier, look, study, tracker):
    cell = card(study)
    courier.tell(cell)
    train(cell, 1, 3)
    until(is_there(look, study, 3))
    aside = tracker.database.with_name("aside.db")
    tracker.database.rename(aside)
    train(cell, 4, 6)
    until(lambda: courier.away and "not there" in courier.away)
    assert not has_content(tracker.database)  # a round that was under way may leave SQLite's empty file
    aside.rename(tracker.database)
    assert courier.finish(30) is None
    assert len(look.runs(study)) == 1 and look.steps(study) == list(range(1, 7))


def test_another_database_in_its_place_gets_everything(courier, look, study, tracker, empty_database):
    cells = [card(study, "abc", "done"), card(study, "def")]
    for cell in cells:
        train(cell, 1, 3)
        courier.tell(cell)
    until(lambda: is_there(look, study, 3)() and len(look.runs(study)) == 2)
    fresh = tracker.database.with_name("fresh.db")
    shutil.copy(empty_database, fresh)
    fresh.replace(tracker.database)
    assert courier.finish(30) is None
    assert look.steps(study, key="abc") == look.steps(study, key="def") == [1, 2, 3]


def test_a_server_that_is_not_there_is_told_in_a_sentence(study):
    courier = Courier(Tracker("http://127.0.0.1:9"), study, every=0.1)
    courier.tell(card(study))
    started = time.monotonic()
    left = courier.finish(3)
    assert time.monotonic() - started < 5
    assert left is not None and "Nothing is lost" in left and str(study.folder) in left and "`hqlt ui`" in left
    courier.thread.join(30)


@pytest.mark.slow
def test_a_server_that_takes_calls_and_never_answers_is_told_in_a_sentence(study):
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        courier = Courier(Tracker(f"http://127.0.0.1:{deaf.getsockname()[1]}"), study, every=0.1)
        courier.tell(card(study))
        started = time.monotonic()
        left = courier.finish(4)
        assert time.monotonic() - started < 6
        assert left is not None and "timed out" in left and "Nothing is lost" in left
        courier.thread.join(30)


@pytest.mark.slow
def test_a_database_on_a_full_disk_is_told_and_catches_up_with_room(small_disk, empty_database, tmp_path):
    tracker, study = default_tracker(small_disk.folder), study_named("which_timing", tmp_path)
    shutil.copy(empty_database, tracker.database)
    cell = card(study)
    train(cell, 1, 3)
    small_disk.fill()
    left = catch_up(tracker, study, [cell])
    assert left is not None and "full" in left and "Nothing is lost" in left
    small_disk.free()
    assert catch_up(tracker, study, [cell]) is None
    assert Looker(tracker).steps(study) == [1, 2, 3]


def test_a_database_that_refuses_is_told_in_a_sentence(study):
    left = catch_up(Tracker("postgresql+psycopg2://nobody@127.0.0.1:9/none"), study, [card(study)])
    assert left is not None and "Nothing is lost" in left


def test_one_cell_in_trouble_does_not_hold_up_the_others(tracker, look, study):
    bad, good = card(study, "bad"), card(study, "good")
    train(good, 1, 3)
    (bad.folder / "metrics.jsonl").mkdir()  # cannot be read
    left = catch_up(tracker, study, [bad, good])
    assert left is not None and "directory" in left
    assert look.steps(study, key="good") == [1, 2, 3]


def test_two_couriers_make_one_run_per_cell(tracker, look, study):
    couriers = [Courier(tracker, study, every=0.05) for _ in range(2)]
    until(lambda: all(courier.delivery.home for courier in couriers))  # both have looked before there was any cell
    cells = [card(study, str(number)) for number in range(8)]
    for cell in cells:
        train(cell, 1, 5)
        for courier in couriers:
            courier.tell(cell)
    assert [courier.finish(30) for courier in couriers] == [None, None]
    assert sorted(run.data.tags["hqlt.cell"] for run in look.runs(study)) == [cell.key for cell in cells]
    assert all(look.steps(study, key=cell.key) == [1, 2, 3, 4, 5] for cell in cells)
    assert len(look.runs(study, "study")) == 1
