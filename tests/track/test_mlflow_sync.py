"""Sync with an unavailable tracking store: training is not delayed, nothing is lost, nothing is sent twice."""

import shutil
import socket
import sqlite3
import time
from contextlib import closing
from types import SimpleNamespace

import pytest

from hqlt_lab.rundir.metrics import MetricsWriter
from hqlt_lab.track import mlflow_sync
from hqlt_lab.track.mlflow_sync import SyncThread, sync_study
from hqlt_lab.track.store_health import has_content
from hqlt_lab.track.tracking_store import TrackingStore, default_tracking_store
from tests.track.conftest import MlflowReader, make_cell, make_study, wait_until, write_outcome, write_points


@pytest.fixture
def sync_thread(tracking_store, study):
    thread = SyncThread(tracking_store, study, interval=0.1)
    yield thread
    thread.drain_queue(0)
    thread.thread.join(30)


def has_steps(reader, study, steps):
    def condition():
        experiment = reader.client.get_experiment_by_name(study.name)
        return experiment and reader.search_runs(study) and len(reader.metric_steps(study)) == steps

    return condition


def test_points_are_sent_while_a_cell_runs(sync_thread, reader, study):
    cell = make_cell(study)
    sync_thread.enqueue(cell)
    write_points(cell, 1, 5)
    wait_until(has_steps(reader, study, 5))
    write_points(cell, 6, 8)
    wait_until(has_steps(reader, study, 8))
    write_outcome(cell, 8)
    sync_thread.enqueue(make_cell(study, state="done"))
    assert sync_thread.drain_queue(20) is None and sync_thread.unavailable_reason is None
    assert reader.search_runs(study)[0].info.status == reader.search_runs(study, "study")[0].info.status == "FINISHED"


def test_the_report_is_attached_to_the_study(sync_thread, reader, study, tmp_path):
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "curve.svg").write_text("<svg/>")
    (tmp_path / "table.md").write_text("| a |\n")
    sync_thread.attach_reports([tmp_path / "table.md", tmp_path / "plots"])
    assert sync_thread.drain_queue(20) is None
    [parent] = reader.search_runs(study, "study")
    assert reader.artifact_names(parent, "report") == {"report/table.md", "report/curve.svg"}


def test_a_locked_database_does_not_block_training_and_loses_nothing(sync_thread, reader, study, tracking_store):
    cell = make_cell(study)
    sync_thread.enqueue(cell)
    write_points(cell, 1, 3)
    wait_until(has_steps(reader, study, 3))
    with closing(sqlite3.connect(tracking_store.sqlite_path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        slowest = 0.0
        with MetricsWriter(cell.folder) as writer:
            for step in range(4, 24):
                started = time.perf_counter()
                writer.write_row(step, {"train/loss": 1.0})
                sync_thread.enqueue(make_cell(study))
                slowest = max(slowest, time.perf_counter() - started)
                time.sleep(0.1)
        assert slowest < 2  # waiting for the database would take as long as it is locked
        wait_until(lambda: sync_thread.unavailable_reason and "locked" in sync_thread.unavailable_reason)
        other.execute("ROLLBACK")
    assert sync_thread.drain_queue(30) is None
    assert reader.metric_steps(study) == list(range(1, 24))


def test_a_database_that_is_moved_away_and_back_gets_everything(sync_thread, reader, study, tracking_store):
    cell = make_cell(study)
    sync_thread.enqueue(cell)
    write_points(cell, 1, 3)
    wait_until(has_steps(reader, study, 3))
    aside = tracking_store.sqlite_path.with_name("aside.db")
    tracking_store.sqlite_path.rename(aside)
    write_points(cell, 4, 6)
    wait_until(lambda: sync_thread.unavailable_reason and "does not exist" in sync_thread.unavailable_reason)
    assert not has_content(tracking_store.sqlite_path)  # a concurrent pass may leave SQLite's empty file
    aside.rename(tracking_store.sqlite_path)
    assert sync_thread.drain_queue(30) is None
    assert len(reader.search_runs(study)) == 1 and reader.metric_steps(study) == list(range(1, 7))


def test_a_new_database_in_its_place_gets_everything(sync_thread, reader, study, tracking_store, empty_database):
    cells = [make_cell(study, "abc", "done"), make_cell(study, "def")]
    for cell in cells:
        write_points(cell, 1, 3)
        sync_thread.enqueue(cell)
    wait_until(lambda: has_steps(reader, study, 3)() and len(reader.search_runs(study)) == 2)
    fresh = tracking_store.sqlite_path.with_name("fresh.db")
    shutil.copy(empty_database, fresh)
    fresh.replace(tracking_store.sqlite_path)
    assert sync_thread.drain_queue(30) is None
    assert reader.metric_steps(study, key="abc") == reader.metric_steps(study, key="def") == [1, 2, 3]


def test_a_server_that_is_down_is_reported(study):
    sync_thread = SyncThread(TrackingStore("http://127.0.0.1:9"), study, interval=0.1)
    sync_thread.enqueue(make_cell(study))
    started = time.monotonic()
    backlog = sync_thread.drain_queue(3)
    assert time.monotonic() - started < 30
    assert (
        backlog is not None and "Nothing is lost" in backlog and str(study.folder) in backlog and "`hqlt ui`" in backlog
    )
    sync_thread.thread.join(30)


@pytest.mark.slow
def test_a_server_that_never_responds_is_reported(study):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sync_thread = SyncThread(TrackingStore(f"http://127.0.0.1:{listener.getsockname()[1]}"), study, interval=0.1)
        sync_thread.enqueue(make_cell(study))
        started = time.monotonic()
        backlog = sync_thread.drain_queue(4)
        assert time.monotonic() - started < 9  # a request that is waited for takes 10 s
        assert backlog is not None and "timed out" in backlog and "Nothing is lost" in backlog
        sync_thread.thread.join(30)


@pytest.mark.slow
def test_a_database_on_a_full_disk_is_reported_and_gets_everything_with_space(small_disk, empty_database, tmp_path):
    tracking_store, study = default_tracking_store(small_disk.folder), make_study("which_timing", tmp_path)
    shutil.copy(empty_database, tracking_store.sqlite_path)
    cell = make_cell(study)
    write_points(cell, 1, 3)
    small_disk.fill()
    backlog = sync_study(tracking_store, study, [cell])
    assert backlog is not None and "full" in backlog and "Nothing is lost" in backlog
    small_disk.free()
    assert sync_study(tracking_store, study, [cell]) is None
    assert MlflowReader(tracking_store).metric_steps(study) == [1, 2, 3]


def test_a_database_that_refuses_connections_is_reported(study):
    backlog = sync_study(TrackingStore("postgresql+psycopg2://nobody@127.0.0.1:9/none"), study, [make_cell(study)])
    assert backlog is not None and "Nothing is lost" in backlog


def test_an_error_in_one_cell_does_not_stop_the_others(tracking_store, reader, study):
    bad, good = make_cell(study, "bad"), make_cell(study, "good")
    write_points(good, 1, 3)
    (bad.folder / "metrics.jsonl").mkdir()  # cannot be read
    backlog = sync_study(tracking_store, study, [bad, good])
    assert backlog is not None and "directory" in backlog
    assert reader.metric_steps(study, key="good") == [1, 2, 3]


def test_two_sync_threads_create_one_run_per_cell(tracking_store, reader, study):
    threads = [SyncThread(tracking_store, study, interval=0.05) for _ in range(2)]
    # both have looked up the study before there is any cell
    wait_until(lambda: all(sync_thread.queue.study_runs for sync_thread in threads))
    cells = [make_cell(study, str(number)) for number in range(8)]
    for cell in cells:
        write_points(cell, 1, 5)
        for sync_thread in threads:
            sync_thread.enqueue(cell)
    assert [sync_thread.drain_queue(30) for sync_thread in threads] == [None, None]
    assert sorted(run.data.tags["hqlt.cell"] for run in reader.search_runs(study)) == [cell.key for cell in cells]
    assert all(reader.metric_steps(study, key=cell.key) == [1, 2, 3, 4, 5] for cell in cells)
    assert len(reader.search_runs(study, "study")) == 1


def done_cells(study, count):
    cells = [make_cell(study, f"{number:03}", "done") for number in range(count)]
    for cell in cells:
        write_points(cell, 1, 3)
        write_outcome(cell, 3)
    return cells


def test_the_end_of_a_study_waits_while_cells_are_sent_and_a_wait_that_is_interrupted_is_resumed(
    tracking_store, study, reader, monkeypatch
):
    monkeypatch.setattr(mlflow_sync, "PROGRESS_INTERVAL", 0.01)
    cells, progress = done_cells(study, 6), []

    def interrupt(sent, total):
        progress.append((sent, total))
        raise KeyboardInterrupt

    for on_progress in (interrupt, lambda *numbers: progress.append(numbers)):
        sync_thread = SyncThread(tracking_store, study)
        for cell in cells:
            sync_thread.enqueue(cell)
        backlog = sync_thread.drain_queue(20, on_progress)
        assert (backlog is None) == (on_progress is not interrupt)
    assert progress[0][0] < 6 and {total for _, total in progress} == {6}
    assert len(reader.search_runs(study)) == 6
    for cell in cells:
        assert reader.metric_steps(study, key=cell.key) == [1, 2, 3]


def test_the_wait_for_mlflow_ends_when_nothing_was_sent_for_the_timeout(study, monkeypatch):
    sync_thread = SyncThread(TrackingStore("http://127.0.0.1:9"), study)  # nothing listens there
    waits, reports = [], []

    def wait(seconds):
        """Let that time pass; a batch is sent in the second, fourth and sixth wait."""
        waits.append(seconds)
        sync_thread.queue.writer.batches_sent += len(waits) in (2, 4, 6)
        return False

    monkeypatch.setattr(mlflow_sync, "PROGRESS_INTERVAL", 1.0)
    monkeypatch.setattr(mlflow_sync, "time", SimpleNamespace(monotonic=lambda: sum(waits)))
    monkeypatch.setattr(sync_thread.drain_finished, "wait", wait)
    backlog = sync_thread.drain_queue(2.5, lambda *numbers: reports.append(numbers))
    assert len(reports) == 3 and waits == [1.0] * 8 + [0.5] and backlog is not None
