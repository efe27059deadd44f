"""Kill anything at any moment, type the same command again: nothing is lost, nothing is there twice.

Every test runs `hqlt run` as a user would, and compares with a run that nobody disturbed.
"""

import os
import random
import re
import shlex
import signal
import sqlite3
import subprocess
import time
from contextlib import closing, suppress

import psutil
import pytest

from hqlt_lab.track.ports import any_port
from hqlt_lab.track.server import end as end_server
from hqlt_lab.track.server import start as start_server
from hqlt_lab.track.server import wait_for
from hqlt_lab.track.store import default_tracker

from .place import Place, everyone, nobody_left, same_as, workers

pytestmark = pytest.mark.slow
AWAY = 30  # seconds that a server is gone


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Place:
    place = Place(tmp_path_factory.mktemp("undisturbed"))
    place.finish()
    return place


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


def test_kill_a_worker(place, undisturbed):
    process = place.start()
    place.wait_for_points(8, process)
    workers(process)[0].kill()
    process.communicate(timeout=300)
    assert process.returncode == 0
    same_as(place, undisturbed)
    assert sorted(place.tries()) == [1, 1, 1, 1, 1, 2]


@pytest.mark.parametrize("also_workers", [False, True])
def test_kill_the_coordinator(place, undisturbed, also_workers):
    process = place.start()
    place.wait_for_points(30, process)
    family = everyone(process)
    if also_workers:
        for one in workers(process):
            one.kill()
    process.kill()
    assert nobody_left(family)
    process.communicate()
    place.finish()
    same_as(place, undisturbed)


def test_kill_inside_a_write_to_the_journal(place, undisturbed):
    process = place.start()
    place.wait_for_points(30, process)
    process.kill()
    process.communicate()
    journal = place.study / "cells.journal"
    with journal.open("ab") as file:
        file.write(b'{"op_code":6,"worker_id":"torn in the mid')
    os.symlink(journal, f"{journal}.lock")  # as Optuna's own lock looks
    began = time.monotonic()
    place.finish()
    assert time.monotonic() - began < 60
    same_as(place, undisturbed)


def test_kill_at_any_moment_again_and_again(place, undisturbed):
    draw = random.Random(4)
    for _ in range(4):
        process = place.start()
        place.wait_for_points(place.points() + 1, process)
        time.sleep(draw.uniform(0, 1.5))
        process.kill()
        process.communicate()
    place.finish()
    same_as(place, undisturbed)


def test_ctrl_c_saves_and_says_how_to_go_on(place, undisturbed):
    process = place.start()
    place.wait_for_points(16, process)
    family = everyone(process)
    os.killpg(process.pid, signal.SIGINT)  # a terminal tells the whole group
    told, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    again = re.search(
        "Stopped. Nothing is lost; go on with\n    hqlt (--with .*faulty.py run study.yaml --set .*)\n", told
    )
    assert again and shlex.split(again[1])[2:] == place.command[3:]
    assert nobody_left(family)
    checkpoints = list(place.study.glob("cells/*/last.ckpt"))
    assert checkpoints
    place.finish()
    same_as(place, undisturbed)
    assert max(place.tries()) == 2


def test_a_second_coordinator_is_refused(place):
    process = place.start()
    place.wait_for_points(1, process)
    process.send_signal(signal.SIGSTOP)  # it must not end before the other one begins
    told = subprocess.run(place.command, cwd=place.folder, capture_output=True, text=True)
    process.kill()
    process.communicate()
    assert told.returncode == 1
    assert f"another program is at work on this study (process {process.pid}" in told.stderr


def test_a_database_that_is_locked_for_a_while(place, undisturbed):
    process = place.start()
    place.wait_for_points(8, process)
    with closing(sqlite3.connect(place.folder / "runs/mlflow.db", timeout=30, isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        time.sleep(4)
        database.execute("ROLLBACK")
    told, _ = process.communicate(timeout=300)
    assert process.returncode == 0, told
    same_as(place, undisturbed)


def test_a_database_that_is_gone_for_a_while(place, undisturbed):
    process = place.start()
    place.wait_for_points(8, process)
    database = place.folder / "runs/mlflow.db"
    database.rename(place.folder / "elsewhere.db")
    told, _ = process.communicate(timeout=300)
    assert process.returncode == 0, told
    assert "Nothing is lost" in told
    assert {state for state, _ in place.results().values()} == {"done"}
    (place.folder / "elsewhere.db").rename(database)
    place.finish()
    same_as(place, undisturbed)


@pytest.mark.parametrize("whom", ["the coordinator", "everyone"])
def test_sigterm_and_five_seconds_later_sigkill(place, undisturbed, whom):
    """Kubernetes tells the first process; SLURM tells all, also workers, whom the coordinator then tells again."""
    process = place.start()
    place.wait_for_points(16, process)
    family, asked = everyone(process), time.time()
    for one in family if whom == "everyone" else family[:1]:
        one.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)
    for one in family:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    told, _ = process.communicate()
    logs = [file.read_text() for file in place.study.glob("cells/*/log.txt")]
    assert sum("The run was stopped and saved at step" in log for log in logs) == 2
    assert max(file.stat().st_mtime for file in place.study.glob("cells/*/last.ckpt")) - asked < 5
    assert process.returncode in (130, -signal.SIGKILL), told
    place.finish()
    same_as(place, undisturbed)


def test_a_disk_that_is_full_for_a_while(small_disk, undisturbed):
    place = Place(small_disk.folder / "place")
    process = place.start()
    place.wait_for_points(30, process)
    small_disk.fill()
    told, _ = process.communicate(timeout=300)
    assert process.returncode == 1, told
    assert f"the disk {small_disk.folder} is full" in told and "run the same command again" in told
    assert not list(place.study.rglob("*.writing"))
    small_disk.free()
    place.finish()
    same_as(place, undisturbed)


def test_an_mlflow_server_that_is_killed_and_comes_back(tmp_path, undisturbed):
    port, served = any_port("127.0.0.1"), default_tracker(tmp_path / "served")
    place = Place(tmp_path / "place", "--tracking", f"http://127.0.0.1:{port}")
    place.database = served.database
    served.database.parent.mkdir()

    def begin() -> "subprocess.Popen[bytes]":
        server = start_server(served, "127.0.0.1", port, tmp_path / "server.log")
        wait_for(server, f"http://127.0.0.1:{port}", tmp_path / "server.log")
        return server

    server = begin()
    try:
        process = place.start()
        place.wait_for_points(16, process)
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        time.sleep(AWAY)
        server = begin()
        told, _ = process.communicate(timeout=300)
        assert process.returncode == 0, told
        if "Nothing is lost" in told:  # the study was over, and waits half a minute for a tracker, not longer
            assert f"MLflow at http://127.0.0.1:{port} does not have everything yet" in told
            place.finish()
        same_as(place, undisturbed)
    finally:
        end_server(server)
