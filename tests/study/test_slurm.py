"""A study through a real SLURM gives what one machine gives, cell by cell, whatever happens to its jobs.

`hqlt run` is typed as a user would; two small nodes and a database are real.
"""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from hqlt_lab import api
from hqlt_lab.registry import include, temporarily
from hqlt_lab.study.record import Record

from .conftest import FAULTY, TINY, Lab
from .slurm import Cluster, cluster, wait_for  # noqa: F401

pytestmark = pytest.mark.slow
HQLT = [str(Path(sys.executable).parent / "hqlt"), "--with", str(FAULTY)]
PATIENCE = 400
# some seconds per cell, so that there is a middle to be disturbed in; no checkpoint but what a job saves when it ends
ARMS = """
arms: {a: {model.mixer: {name: faulty, seconds: 0.1}}, b: {model.mixer: {name: faulty, seconds: 0.05}}}
seeds: 2
"""
LONG = ("train.steps=40", "train.valid_every=20", "train.checkpoint_every=1000")


class Place:
    """A folder in which the command is typed, where SLURM's commands and the database are known."""

    def __init__(self, folder: Path, cluster: Cluster, database: str) -> None:  # noqa: F811
        self.folder, self.cluster = folder, cluster
        self.environment = cluster.environment | {"HQLT_STORE": database, "OMP_NUM_THREADS": "1"}
        self.study = folder / "runs/studies/study"

    def start(self, jobs: int, change: tuple[str, ...] = (), only: str = "") -> "subprocess.Popen[str]":
        launcher = f"launcher: {{name: slurm, workers: {jobs}, time: '00:30:00', notice: 60}}"
        (self.folder / "study.yaml").write_text(TINY.replace("launcher: {workers: 2, threads: 1}", launcher) + ARMS)
        self.change = (*LONG, *change)
        words = [word for one in self.change for word in ("--set", one)] + (["--only", only] if only else [])
        pipe, both = subprocess.PIPE, subprocess.STDOUT
        return subprocess.Popen(
            [*HQLT, "run", "study.yaml", *words],
            cwd=self.folder, env=self.environment, stdout=pipe, stderr=both, text=True,
        )  # fmt: skip

    def finish(self, process: "subprocess.Popen[str]") -> str:
        try:
            told, _ = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            told, _ = process.communicate()
        logs = "\n".join(file.read_text() for file in sorted(self.study.glob("slurm/*.log")))
        assert process.returncode == 0, told + logs
        return told

    def array(self) -> str:
        """The number of the jobs, once they are submitted."""
        file = self.study / "slurm/job.id"
        wait_for(file.exists, PATIENCE, "a submission")
        return file.read_text().strip()

    def points(self) -> int:
        return sum(file.read_bytes().count(b"\n") for file in self.study.glob("cells/*/metrics.jsonl"))

    def records(self) -> list[Record]:
        with temporarily():
            include(FAULTY)
            return api.status(self.folder / "study.yaml", change=self.change, runs=self.folder / "runs").records

    def results(self) -> dict[str, tuple[str, Mapping[str, float]]]:
        return {record.key: (record.state, record.metrics) for record in self.records()}


@pytest.fixture
def place(tmp_path, cluster, postgres, monkeypatch) -> Place:  # noqa: F811
    database = postgres.database()
    monkeypatch.setenv("HQLT_STORE", database)  # we look into it as well
    return Place(tmp_path, cluster, database)


@pytest.fixture(scope="module")
def here(tmp_path_factory) -> dict[str, tuple[str, Mapping[str, float]]]:
    """What the same cells give on this machine."""
    lab = Lab(tmp_path_factory.mktemp("here"))
    with temporarily():
        include(FAULTY)
        experiment = lab.experiment(ARMS, overrides=LONG)
        lab.run(experiment)
        return {record.key: (record.state, record.metrics) for record in lab.records(experiment)}


def test_an_array_gives_what_one_machine_gives_and_is_submitted_once(place, here):
    place.cluster.ask("scontrol", "update", "nodename=ALL", "state=drain", "reason=test")  # nothing begins yet
    try:
        first = place.start(2)
        number = place.array()
        second = place.start(2)
        assert any("This study has jobs in SLURM already, 2 pending" in line for line in second.stdout)
        second.send_signal(signal.SIGINT)
        told, _ = second.communicate(timeout=PATIENCE)
    finally:
        place.cluster.ask("scontrol", "update", "nodename=ALL", "state=resume")
    assert (second.returncode, f"    scancel {number}\n" in told) == (130, True), told
    assert f"Submitted to SLURM: array {number} of 2 jobs" in place.finish(first)
    assert place.array() == number
    assert place.results() == here
    assert [record.attempts for record in place.records()] == [1, 1, 1, 1]
    assert len(list(place.study.glob("slurm/*.log"))) == 2


def test_a_job_that_is_warned_or_taken_back_goes_on_from_its_checkpoint(place, here):
    process = place.start(1)
    job = f"{place.array()}_1"
    state = lambda: place.cluster.ask("squeue", "--noheader", "--format=%T", f"--jobs={job}").strip()  # noqa: E731

    def started() -> bool:
        """Now, instead of two minutes after it was queued again; SLURM sets that time when it likes."""
        if state() == "PENDING":
            place.cluster.ask("scontrol", "release", job)  # a start that a busy machine failed at is held back
            place.cluster.ask("scontrol", "update", f"jobid={job}", "starttime=now")
        return state() == "RUNNING"

    for disturbance in (["scancel", "--batch", "--signal=USR1", job], ["scontrol", "requeue", job]):
        before = place.points()
        wait_for(lambda before=before: started() and place.points() > before + 10, PATIENCE, "training")
        place.cluster.ask(*disturbance)  # the first is what SLURM sends before the time is over
        wait_for(lambda: state() == "PENDING", 60, "a job that is queued again")
    wait_for(started, PATIENCE, "a job that begins again")
    place.finish(process)
    assert place.results() == here
    assert sorted(record.attempts for record in place.records()) == [1, 1, 1, 3]
    disturbed = max(place.records(), key=lambda record: record.attempts).folder
    assert (disturbed / "log.txt").read_text().count("The run was stopped and saved at step") == 2
    lines = [json.loads(line) for line in (disturbed / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "train/loss" in line["metrics"]] == list(range(1, 41))


@pytest.mark.skipif(shutil.which("srun") is None, reason="a run over two nodes needs srun")
def test_a_cell_on_two_nodes_gives_what_one_process_gives(place, here):
    place.finish(place.start(1, change=("trainer.nodes=2",), only="arm=b,seed=0"))
    (record,) = (record for record in place.records() if record.state != "waiting")
    assert (record.arm, record.seed, record.state, record.attempts) == ("b", 0, "done", 1)
    assert record.metrics == pytest.approx(here[record.key][1], abs=1e-4)
    assert (record.folder / "process.log").read_text().count("Initializing distributed") == 2
