"""One study trained by several processes that are killed or stopped, and whose database goes down.

Every test starts `hqlt worker` and `hqlt run` as a user would, and compares the results with those of an undisturbed
run that uses a journal.
"""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch

from .conftest import TINY
from .study_folder import HQLT, LONGER, STUDY, StudyFolder, all_exited, assert_same_results, process_tree, wait_until

pytestmark = pytest.mark.slow
ONE_WORKER = ("--set", "launcher.workers=1")


class SharedStudyFolder(StudyFolder):
    """A folder in which several processes share a study."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder)
        self.environment = {**os.environ, "HQLT_STORE": url}
        self.output_files: dict[int, Path] = {}  # by process id

    def start_command(self, subcommand: str = "worker", study: str = "study.yaml") -> "subprocess.Popen[str]":
        command = [*HQLT, subcommand, study, *LONGER, *ONE_WORKER]
        output_file = self.folder / f"output_{len(self.output_files)}.txt"
        with output_file.open("w") as output:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=output, stderr=subprocess.STDOUT, text=True,
                start_new_session=True,
            )  # fmt: skip
        self.output_files[process.pid] = output_file
        return process

    def read_output(self, process: "subprocess.Popen[str]") -> str:
        """Return what a command has printed so far."""
        return self.output_files[process.pid].read_text()

    def wait_for_exit(self, process: "subprocess.Popen[str]", code: int = 0) -> str:
        """Wait until a command has exited with this code, and return its output."""
        process.wait(timeout=200)
        assert process.returncode == code, self.read_output(process)
        return self.read_output(process)


def has_started_worker(process: "subprocess.Popen[str]") -> bool:
    """Return whether the first training process of a command was forked."""
    with suppress(psutil.NoSuchProcess):  # some processes exit right after they started
        return any("forkserver" in " ".join(child.cmdline()) and child.children() for child in process_tree(process))
    return False


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> StudyFolder:
    folder = StudyFolder(tmp_path_factory.mktemp("undisturbed"))
    folder.finish()
    return folder


@pytest.fixture
def study(tmp_path, postgres, monkeypatch) -> SharedStudyFolder:
    study = SharedStudyFolder(tmp_path, postgres.create_database())
    monkeypatch.setenv("HQLT_STORE", study.environment["HQLT_STORE"])
    return study


def test_remaining_worker_resumes_the_cells_of_a_killed_and_a_stopped_one(study, undisturbed):
    """Three workers join, the last one by the study's name."""
    killed, stopped = study.start_command(), study.start_command()
    wait_until((study.folder / "runs/studies/study/study.yaml").exists)
    last = study.start_command(study="study")
    wait_until(lambda: all(has_started_worker(process) for process in (killed, stopped, last)))
    study.wait_for_points(20, last)
    killed_processes = process_tree(killed)
    killed.kill()
    killed.wait()
    assert all_exited(killed_processes)
    stopped.send_signal(signal.SIGTERM)
    assert "other workers resume them" in study.wait_for_exit(stopped, code=130)
    study.wait_for_exit(last)
    study.wait_for_exit(study.start_command("run"))
    assert_same_results(study, undisturbed)
    assert sorted(study.tries())[:3] == [1, 1, 1] and max(study.tries()) <= 3


def test_workers_survive_a_database_that_is_killed_and_restarted(study, undisturbed, postgres):
    processes = [study.start_command("run"), study.start_command()]
    study.wait_for_points(30, processes[0])
    postgres.kill()
    wait_until(lambda: any("waiting for it" in study.read_output(process) for process in processes))
    postgres.start()
    for process in processes:
        study.wait_for_exit(process)
    assert_same_results(study, undisturbed)


def test_run_that_is_stopped_while_the_database_is_down_saves_a_checkpoint(study, postgres):
    (study.folder / "study.yaml").write_text(TINY + STUDY.replace("0.04", "0.5"))  # each cell takes twelve seconds
    process = study.start_command("run")
    study.wait_for_points(3, process)
    postgres.kill()
    wait_until(lambda: "waiting for it" in study.read_output(process))  # now the coordinator is retrying the database
    process.send_signal(signal.SIGTERM)
    assert "Nothing is lost: run the same command again" in study.wait_for_exit(process, code=1)
    postgres.start()
    (log,) = (file.read_text() for file in study.study.glob("cells/*/log.txt"))
    (checkpoint,) = study.study.glob("cells/*/last.ckpt")
    step = torch.load(checkpoint, weights_only=True)["global_step"]
    assert step > 3 and f"stopped and saved at step {step}" in log


def test_two_coordinators_share_the_cells(study, undisturbed):
    processes = [study.start_command("run"), study.start_command("run")]
    for process in processes:
        assert "6/6" in study.wait_for_exit(process)
    assert_same_results(study, undisturbed)
    assert study.tries() == [1] * 6
