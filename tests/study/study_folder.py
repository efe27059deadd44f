"""A folder in which tests run, kill and rerun `hqlt`, and assertions on the results."""

import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import psutil

from hqlt_lab import api
from hqlt_lab.registry import load_components, temporary_components
from hqlt_lab.study.ledger.cell_record import CellRecord

from .conftest import FAULTY, TINY

HQLT = [str(Path(sys.executable).parent / "hqlt"), "--with", str(FAULTY)]
# A cell takes a second, so that it can be killed in the middle, and writes two checkpoints, so that it can be resumed.
STUDY = """
arms: {a: {model.mixer: {name: faulty, seconds: 0.04}}, b: {model.mixer: {name: faulty, seconds: 0.04, how: other}}}
seeds: 3
"""
LONGER = ("--set", "train.steps=25", "--set", "train.checkpoint_every=10")


class StudyFolder:
    """A folder with an experiment file, in which `hqlt run` is executed."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.database = folder, folder / "runs/mlflow.db"
        folder.mkdir(parents=True, exist_ok=True)
        self.write_study(STUDY)
        self.study = folder / "runs/studies/study"
        self.command = [*HQLT, "run", "study.yaml", *LONGER, *options]

    def write_study(self, text: str) -> None:
        (self.folder / "study.yaml").write_text(TINY + text)

    def start(self) -> "subprocess.Popen[str]":
        pipe, both = subprocess.PIPE, subprocess.STDOUT
        return subprocess.Popen(
            self.command, cwd=self.folder, stdout=pipe, stderr=both, text=True, start_new_session=True
        )

    def finish(self) -> str:
        """Run the command to its end; return its output."""
        result = subprocess.run(self.command, cwd=self.folder, capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout + result.stderr

    def points(self) -> int:
        """Return the number of lines in the metrics files of all cells."""
        return sum(file.read_bytes().count(b"\n") for file in self.study.glob("cells/*/metrics.jsonl"))

    def wait_for_points(self, count: int, process: "subprocess.Popen[str]") -> None:
        deadline = time.monotonic() + 300
        while self.points() < count and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert process.poll() is None and self.points() >= count

    def records(self) -> list[CellRecord]:
        with temporary_components():
            load_components(FAULTY)
            return api.read_status(
                self.folder / "study.yaml", overrides=LONGER[1::2], runs=self.folder / "runs"
            ).records

    def results(self) -> dict[str, tuple[str, Mapping[str, float]]]:
        return {record.key: (record.state, record.metrics) for record in self.records()}

    def tries(self) -> list[int]:
        return [record.attempts for record in self.records()]

    def tracked(self) -> tuple[int, int, set[int]]:
        """Return from MLflow: runs of cells, points that exist twice, and the numbers of loss points per run."""
        with closing(sqlite3.connect(self.database)) as database:
            query = lambda statement: database.execute(statement).fetchall()  # noqa: E731
            runs = query("select count(*) from tags where key = 'hqlt.kind' and value = 'cell'")[0][0]
            twice = query("select run_uuid, key, step from metrics group by run_uuid, key, step having count(*) > 1")
            losses = query("select run_uuid, count(*) from metrics where key = 'train/loss' group by run_uuid")
        return runs, len(twice), {count for _, count in losses}


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true; fail after a time that is ample on a busy machine."""
    deadline = time.monotonic() + 120
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


def process_tree(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    """Return the coordinator's process and all its descendants."""
    coordinator = psutil.Process(process.pid)
    return [coordinator, *coordinator.children(recursive=True)]


def worker_processes(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    """Return the workers, which are children of the coordinator's forkserver."""
    server = next(child for child in process_tree(process) if "forkserver" in " ".join(child.cmdline()))
    return server.children()


def all_exited(processes: list[psutil.Process]) -> bool:
    """Return whether all processes exit within some seconds."""
    deadline = time.monotonic() + 15
    running = processes
    while running and time.monotonic() < deadline:
        time.sleep(0.2)
        running = [process for process in running if is_alive(process)]
    return not running


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def assert_same_results(folder: StudyFolder, undisturbed: StudyFolder) -> None:
    """Assert that every cell is done once, with the same result, and has its metrics in MLflow once."""
    assert folder.results() == undisturbed.results()
    assert {state for state, _ in folder.results().values()} == {"done"}
    assert folder.tracked() == undisturbed.tracked() == (6, 0, {25})
