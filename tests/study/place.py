"""A folder in which `hqlt` is typed, killed and typed again, and what must be the same afterwards."""

import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import psutil

from hqlt_lab import api
from hqlt_lab.registry import include, temporarily
from hqlt_lab.study.record import Record

from .conftest import FAULTY, TINY

HQLT = [str(Path(sys.executable).parent / "hqlt"), "--with", str(FAULTY)]
# a second per cell, so that there is a middle to be killed in; two checkpoints, so that there is something to resume
STUDY = """
arms: {a: {model.mixer: {name: faulty, seconds: 0.04}}, b: {model.mixer: {name: faulty, seconds: 0.04, how: other}}}
seeds: 3
"""
LONGER = ("--set", "train.steps=25", "--set", "train.checkpoint_every=10")


class Place:
    """A folder in which the command is typed."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder, self.database = folder, folder / "runs/mlflow.db"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "study.yaml").write_text(TINY + STUDY)
        self.study = folder / "runs/studies/study"
        self.command = [*HQLT, "run", "study.yaml", *LONGER, *words]

    def start(self) -> "subprocess.Popen[str]":
        pipe, told = subprocess.PIPE, subprocess.STDOUT
        return subprocess.Popen(
            self.command, cwd=self.folder, stdout=pipe, stderr=told, text=True, start_new_session=True
        )

    def finish(self) -> str:
        """Type the command and wait for its end."""
        done = subprocess.run(self.command, cwd=self.folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def points(self) -> int:
        """How many lines all curves have by now."""
        return sum(file.read_bytes().count(b"\n") for file in self.study.glob("cells/*/metrics.jsonl"))

    def wait_for_points(self, count: int, process: "subprocess.Popen[str]") -> None:
        until = time.monotonic() + 300
        while self.points() < count and process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        assert process.poll() is None and self.points() >= count

    def records(self) -> list[Record]:
        with temporarily():
            include(FAULTY)
            return api.status(self.folder / "study.yaml", change=LONGER[1::2], runs=self.folder / "runs").records

    def results(self) -> dict[str, tuple[str, Mapping[str, float]]]:
        return {record.key: (record.state, record.metrics) for record in self.records()}

    def tries(self) -> list[int]:
        return [record.attempts for record in self.records()]

    def tracked(self) -> tuple[int, int, set[int]]:
        """Runs of cells in MLflow, points that are there twice, and the numbers of loss points per run."""
        with closing(sqlite3.connect(self.database)) as database:
            ask = lambda query: database.execute(query).fetchall()  # noqa: E731
            runs = ask("select count(*) from tags where key = 'hqlt.kind' and value = 'cell'")[0][0]
            twice = ask("select run_uuid, key, step from metrics group by run_uuid, key, step having count(*) > 1")
            losses = ask("select run_uuid, count(*) from metrics where key = 'train/loss' group by run_uuid")
        return runs, len(twice), {count for _, count in losses}


def everyone(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    """The coordinator and all that came from it."""
    coordinator = psutil.Process(process.pid)
    return [coordinator, *coordinator.children(recursive=True)]


def workers(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    server = next(one for one in everyone(process) if "forkserver" in " ".join(one.cmdline()))
    return server.children()


def nobody_left(family: list[psutil.Process]) -> bool:
    """Some seconds later."""
    until = time.monotonic() + 15
    left = family
    while left and time.monotonic() < until:
        time.sleep(0.2)
        left = [one for one in left if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    return not left


def same_as(place: Place, undisturbed: Place) -> None:
    """Each cell once, with the same result, and its curve in MLflow once."""
    assert place.results() == undisturbed.results()
    assert {state for state, _ in place.results().values()} == {"done"}
    assert place.tracked() == undisturbed.tracked() == (6, 0, {25})
