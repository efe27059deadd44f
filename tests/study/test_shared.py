"""One study, several programs: killed, stopped, without their database for a while, and all at once.

Every test types `hqlt worker` and `hqlt run` as a user would, and compares with a run that nobody disturbed, on a
journal.
"""

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch

from .conftest import TINY
from .place import HQLT, LONGER, STUDY, Place, everyone, nobody_left, same_as

pytestmark = pytest.mark.slow
ONE = ("--set", "launcher.workers=1")


class Shared(Place):
    """A folder in which several programs are started."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder)
        self.told = {**os.environ, "HQLT_STORE": url}

    def begin(self, verb: str = "worker", study: str = "study.yaml") -> "subprocess.Popen[str]":
        command = [*HQLT, verb, study, *LONGER, *ONE]
        pipe, told = subprocess.PIPE, subprocess.STDOUT
        return subprocess.Popen(
            command, cwd=self.folder, env=self.told, stdout=pipe, stderr=told, text=True, start_new_session=True
        )

    def end(self, process: "subprocess.Popen[str]", code: int = 0) -> str:
        said, _ = process.communicate(timeout=200)
        assert process.returncode == code, said
        return said


def wait_until(true) -> None:
    until = time.monotonic() + 120
    while not true() and time.monotonic() < until:
        time.sleep(0.05)
    assert true()


def at_a_cell(process: "subprocess.Popen[str]") -> bool:
    """Whether its first worker was made."""
    with suppress(psutil.NoSuchProcess):  # some are there for a moment only
        return any("forkserver" in " ".join(one.cmdline()) and one.children() for one in everyone(process))
    return False


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Place:
    place = Place(tmp_path_factory.mktemp("undisturbed"))
    place.finish()
    return place


@pytest.fixture
def place(tmp_path, postgres, monkeypatch) -> Shared:
    place = Shared(tmp_path, postgres.database())
    monkeypatch.setenv("HQLT_STORE", place.told["HQLT_STORE"])
    return place


def test_a_worker_is_killed_and_another_stopped(place, undisturbed):
    """Three join, the last by the study's name: one is killed, one told to end; it goes on from their checkpoints."""
    killed, stopped = place.begin(), place.begin()
    wait_until((place.folder / "runs/studies/study/study.yaml").exists)
    last = place.begin(study="study")
    everybody = killed, stopped, last
    wait_until(lambda: all(at_a_cell(process) for process in everybody))
    place.wait_for_points(20, last)
    family = everyone(killed)
    killed.kill()
    killed.communicate()
    assert nobody_left(family)
    stopped.send_signal(signal.SIGTERM)
    assert "whoever is left goes on with them" in place.end(stopped, code=130)
    place.end(last)
    place.end(place.begin("run"))
    same_as(place, undisturbed)
    assert sorted(place.tries())[:3] == [1, 1, 1] and max(place.tries()) <= 3


def test_the_database_is_killed_in_the_middle(place, undisturbed, postgres):
    both = [place.begin("run"), place.begin()]
    place.wait_for_points(30, both[0])
    postgres.kill()
    time.sleep(5)
    postgres.start()
    said = [place.end(process) for process in both]
    assert any("is away" in one for one in said)
    same_as(place, undisturbed)


def test_who_is_stopped_while_the_database_is_away_saves_all_the_same(place, postgres):
    (place.folder / "study.yaml").write_text(TINY + STUDY.replace("0.04", "0.5"))  # cells of twelve seconds
    process = place.begin("run")
    place.wait_for_points(3, process)
    postgres.kill()
    time.sleep(4)  # by now it waits for the database
    process.send_signal(signal.SIGTERM)
    assert "Nothing is lost: run the same command again" in place.end(process, code=1)
    postgres.start()
    (log,) = (file.read_text() for file in place.study.glob("cells/*/log.txt"))
    (checkpoint,) = place.study.glob("cells/*/last.ckpt")
    step = torch.load(checkpoint, weights_only=True)["global_step"]
    assert step > 3 and f"stopped and saved at step {step}" in log


def test_two_coordinators_at_once_share_the_cells(place, undisturbed):
    both = [place.begin("run"), place.begin("run")]
    for process in both:
        assert "6/6" in place.end(process)
    same_as(place, undisturbed)
    assert place.tries() == [1] * 6
