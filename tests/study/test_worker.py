"""Workers report in time and share a cell's folder safely with a worker wrongly declared dead."""

import json
import multiprocessing
import os
import shutil
import socket
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from hqlt_lab.rundir import cell_file
from hqlt_lab.rundir.metrics import METRICS_FILE, read_rows
from hqlt_lab.study.executors.local_executor import LocalExecutor
from hqlt_lab.study.executors.worker import LOG_FILE, make_job_spec, run_attempt, send_if_writable

from .study_folder import wait_until


def final_event_kind(executor):
    while True:
        for event in executor.poll_events(timeout=10):
            if event.kind != "metrics":
                return event.kind


def peek_bytes(pipe: Connection) -> bytes:
    """Return the bytes that a pipe holds, without receiving them."""
    if not pipe.poll():
        return b""
    with socket.socket(fileno=os.dup(pipe.fileno())) as connection:
        return connection.recv(1_000_000, socket.MSG_PEEK)


def test_finished_cell_is_not_overdue_while_its_last_message_is_unread(lab):
    experiment, executor = lab.experiment("seeds: 2"), LocalExecutor(1, 1, 0, lambda cell: 0, None)
    try:
        for seed in range(2):
            folder, executor.time_limit = lab.folder / str(seed), None
            executor.start_cell(str(seed), experiment.make_cell(experiment.arms[0], {}, seed), folder, 1)
            pipe = executor.worker_handles[0].pipe
            wait_until(lambda pipe=pipe: b"ended" in peek_bytes(pipe))
            executor.time_limit = 1e-6
            assert final_event_kind(executor) == "ended"
    finally:
        executor.close()


def test_unread_metrics_do_not_block_the_worker():
    coordinator_end, worker_end = multiprocessing.Pipe()
    for step in range(100_000):
        send_if_writable(worker_end, ("metrics", {"step": step, "metrics": {"train/loss": 0.5}}))
    worker_end.send(("ended", {}))  # there is space left for messages that must not be dropped
    assert coordinator_end.recv()[1]["step"] == 0


POINT = json.dumps({"step": 1, "time": 1, "metrics": {"train/loss": 7.0}}) + "\n"


def write_row_slowly(folder: Path, started: threading.Event) -> None:
    """Write the first half of a point, and the second half when the next worker is about to train here."""
    with cell_file.training_lock(folder), (folder / METRICS_FILE).open("a", buffering=1) as file:
        file.write(POINT[:20])
        file.flush()
        started.set()
        while not (folder / cell_file.CELL_FILE).exists():
            time.sleep(0.01)
        file.write(POINT[20:])


def test_metrics_that_another_worker_still_writes_are_not_cut_off(lab, tmp_path):
    experiment, folder, started = lab.experiment("seeds: 1"), tmp_path / "cell", threading.Event()
    folder.mkdir()
    other = threading.Thread(target=write_row_slowly, args=(folder, started), daemon=True)
    other.start()
    assert started.wait(10)
    job_spec = make_job_spec(experiment.make_cell(experiment.arms[0], {}, 0), folder, 2, visible_devices="")
    assert run_attempt(job_spec, lambda message: None, lambda: False)[0] == "ended"
    points = read_rows(folder)[0]
    assert points[0].metrics["train/loss"] == 7.0 and {point.step for point in points} == {1, 2, 3, 4, 5, 6}
    assert not [file.path for file in psutil.Process().open_files() if Path(file.path).is_relative_to(folder)]


def test_worker_logs_into_the_log_of_its_cell(lab, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)  # descriptor 2, as in a worker
    experiment, folder = lab.experiment("seeds: 1"), tmp_path / "cell"
    job_spec = make_job_spec(experiment.make_cell(experiment.arms[0], {}, 0), folder, 1, visible_devices="")
    (folder / cell_file.CELL_FILE).mkdir(parents=True)  # so that the cell cannot be written
    kind, _ = run_attempt(job_spec, lambda message: None, lambda: False)
    assert kind == "failed" and (folder / LOG_FILE).read_text().count("Traceback (most recent call last)") == 1
    assert capfd.readouterr().err == ""


def run_tiny_attempt(lab, folder, on_metrics=lambda: None):
    experiment = lab.experiment("seeds: 1")
    job_spec = make_job_spec(experiment.make_cell(experiment.arms[0], {}, 0), folder, 1, visible_devices="")
    return run_attempt(job_spec, lambda message: on_metrics(), lambda: False)


def test_a_folder_that_cannot_be_written_blocks_the_attempt(lab, tmp_path):
    (tmp_path / "file").touch()
    kind, payload = run_tiny_attempt(lab, tmp_path / "file/cell")
    assert kind == "blocked" and str(tmp_path / "file/cell") in payload["why"]


def test_a_folder_that_is_deleted_in_training_fails_the_attempt_and_the_next_one_writes_all_files(lab, tmp_path):
    folder = tmp_path / "cell"
    kind, payload = run_tiny_attempt(lab, folder, lambda: shutil.rmtree(folder, ignore_errors=True))
    assert (kind, payload["permanent"]) == ("failed", False) and str(folder) in payload["why"]
    assert not folder.exists()
    assert run_tiny_attempt(lab, folder)[0] == "ended"
    assert {"cell.json", "metrics.jsonl", "outcome.json"} <= {file.name for file in folder.iterdir()}


def test_a_run_that_has_lost_a_file_is_not_done(lab, tmp_path):
    folder = tmp_path / "cell"
    kind, payload = run_tiny_attempt(lab, folder, lambda: (folder / cell_file.CELL_FILE).unlink(missing_ok=True))
    assert (kind, payload["permanent"]) == ("failed", False) and cell_file.CELL_FILE in payload["why"]
