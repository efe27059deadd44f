"""Kill any process at any moment and run the same command again: nothing is lost, nothing is duplicated.

Every test runs `hqlt run` as a user would and compares the results with those of an undisturbed run.
"""

import os
import random
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import time
from contextlib import closing, suppress

import psutil
import pytest

from hqlt_lab.track.tracking_store import default_tracking_store
from hqlt_lab.track.ui.network import find_free_port
from hqlt_lab.track.ui.server import start_server, stop_server, wait_until_healthy

from .study_folder import StudyFolder, all_exited, assert_same_results, process_tree, worker_processes

pytestmark = pytest.mark.slow
OUTAGE_SECONDS = 30


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> StudyFolder:
    study = StudyFolder(tmp_path_factory.mktemp("undisturbed"))
    study.finish()
    return study


@pytest.fixture
def study(tmp_path) -> StudyFolder:
    return StudyFolder(tmp_path)


def test_killed_worker_is_replaced(study, undisturbed):
    process = study.start()
    study.wait_for_points(8, process)
    worker_processes(process)[0].kill()
    process.communicate(timeout=300)
    assert process.returncode == 0
    assert_same_results(study, undisturbed)
    assert sorted(study.tries()) == [1, 1, 1, 1, 1, 2]


@pytest.mark.parametrize("also_workers", [False, True])
def test_study_resumes_after_the_coordinator_was_killed(study, undisturbed, also_workers):
    process = study.start()
    study.wait_for_points(30, process)
    processes = process_tree(process)
    if also_workers:
        for worker in worker_processes(process):
            worker.kill()
    process.kill()
    assert all_exited(processes)
    process.communicate()
    study.finish()
    assert_same_results(study, undisturbed)


def test_study_resumes_after_a_torn_write_to_the_journal(study, undisturbed):
    process = study.start()
    study.wait_for_points(30, process)
    process.kill()
    process.communicate()
    journal = study.study / "cells.journal"
    with journal.open("ab") as file:
        file.write(b'{"op_code":6,"worker_id":"torn in the mid')
    os.symlink(journal, f"{journal}.lock")  # a lock file as Optuna leaves it
    study.finish()
    assert_same_results(study, undisturbed)


def test_study_resumes_after_being_killed_repeatedly_at_random_moments(study, undisturbed):
    rng = random.Random(4)
    for _ in range(4):
        process = study.start()
        study.wait_for_points(study.points() + 1, process)
        time.sleep(rng.uniform(0, 1.5))
        process.kill()
        process.communicate()
    study.finish()
    assert_same_results(study, undisturbed)


def test_ctrl_c_saves_checkpoints_and_prints_the_command_to_resume(study, undisturbed):
    process = study.start()
    study.wait_for_points(16, process)
    processes = process_tree(process)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to the whole process group
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    match = re.search(
        "Stopped. All progress is saved. Resume with\n    hqlt (--with .*faulty_mixer.py run study.yaml --set .*)\n",
        output,
    )
    assert match and shlex.split(match[1])[2:] == study.command[3:]
    assert all_exited(processes)
    checkpoints = list(study.study.glob("cells/*/last.ckpt"))
    assert checkpoints
    study.finish()
    assert_same_results(study, undisturbed)
    assert max(study.tries()) == 2


def test_second_coordinator_is_rejected(study):
    process = study.start()
    study.wait_for_points(1, process)
    process.send_signal(signal.SIGSTOP)  # so that it does not end before the second one starts
    result = subprocess.run(study.command, cwd=study.folder, capture_output=True, text=True)
    process.kill()
    process.communicate()
    assert result.returncode == 1
    assert f"another process is running this study (process {process.pid}" in result.stderr


def test_temporarily_locked_mlflow_database_loses_nothing(study, undisturbed):
    process = study.start()
    study.wait_for_points(8, process)
    with closing(sqlite3.connect(study.folder / "runs/mlflow.db", timeout=30, isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        study.wait_for_points(100, process)  # training continues while the database is locked
        database.execute("ROLLBACK")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert_same_results(study, undisturbed)


def test_temporarily_missing_mlflow_database_loses_nothing(study, undisturbed):
    # the database exists before the other cells are trained, because creating it takes longer than training them
    first_cell = [*study.command, "--only", "arm=a,seed=0"]
    subprocess.run(first_cell, cwd=study.folder, capture_output=True, timeout=300, check=True)
    points = study.points()
    process = study.start()
    study.wait_for_points(points + 8, process)
    database = study.folder / "runs/mlflow.db"
    database.rename(study.folder / "elsewhere.db")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert "Nothing is lost" in output
    assert {state for state, _ in study.results().values()} == {"done"}
    (study.folder / "elsewhere.db").rename(database)
    study.finish()
    assert_same_results(study, undisturbed)


@pytest.mark.parametrize("target", ["coordinator", "all processes"])
def test_sigkill_five_seconds_after_sigterm_loses_nothing(study, undisturbed, target):
    """Kubernetes signals the first process.  SLURM signals all, so workers also get the coordinator's signal."""
    process = study.start()
    study.wait_for_points(16, process)
    processes, signal_time = process_tree(process), time.time()
    for target_process in processes if target == "all processes" else processes[:1]:
        target_process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)
    for remaining in processes:
        with suppress(psutil.NoSuchProcess):
            remaining.kill()
    output, _ = process.communicate()
    logs = [file.read_text() for file in study.study.glob("cells/*/log.txt")]
    assert sum("The run was stopped and saved at step" in log for log in logs) == 2
    assert max(file.stat().st_mtime for file in study.study.glob("cells/*/last.ckpt")) - signal_time < 5
    assert process.returncode in (130, -signal.SIGKILL), output
    study.finish()
    assert_same_results(study, undisturbed)


def test_study_resumes_after_the_disk_was_full(small_disk, undisturbed):
    study = StudyFolder(small_disk.folder / "place")
    process = study.start()
    study.wait_for_points(30, process)
    small_disk.fill()
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 1, output
    assert f"the disk {small_disk.folder} is full" in output and "run the same command again" in output
    assert not list(study.study.rglob("*.writing"))
    small_disk.free()
    study.finish()
    assert_same_results(study, undisturbed)


@pytest.mark.parametrize("loss", ["moved away", "replaced by a file"])
def test_a_study_whose_folder_cannot_be_written_any_more_ends_with_a_sentence_and_resumes(study, undisturbed, loss):
    with study.start() as process:
        study.wait_for_points(10, process)
        study.study.rename(study.folder / "elsewhere")
        if loss == "replaced by a file":
            study.study.touch()
        output = process.communicate(timeout=120)[0]
    assert process.returncode == 1 and "Traceback" not in output and str(study.study) in output, output
    if study.study.is_dir():
        shutil.rmtree(study.study)  # created again by the sync thread
    study.study.unlink(missing_ok=True)
    (study.folder / "elsewhere").rename(study.study)
    study.finish()
    assert_same_results(study, undisturbed)


def test_restart_of_a_killed_mlflow_server_loses_nothing(tmp_path, undisturbed):
    port, store = find_free_port("127.0.0.1"), default_tracking_store(tmp_path / "served")
    study = StudyFolder(tmp_path / "place", "--tracking", f"http://127.0.0.1:{port}")
    study.database = store.sqlite_path
    store.sqlite_path.parent.mkdir()

    def start_healthy_server() -> "subprocess.Popen[bytes]":
        server = start_server(store, "127.0.0.1", port, tmp_path / "server.log")
        wait_until_healthy(server, f"http://127.0.0.1:{port}", tmp_path / "server.log")
        return server

    server = start_healthy_server()
    try:
        process = study.start()
        study.wait_for_points(16, process)
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        time.sleep(OUTAGE_SECONDS)
        server = start_healthy_server()
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
        if "Nothing is lost" in output:  # the study had ended, and it waits no longer than half a minute for the server
            assert f"MLflow at http://127.0.0.1:{port} is not up to date" in output
            study.finish()
        assert_same_results(study, undisturbed)
    finally:
        stop_server(server)
