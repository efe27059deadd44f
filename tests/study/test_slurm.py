"""A study on a real SLURM cluster gives the same results as on one machine, whatever happens to its jobs.

`hqlt run` is executed as a user would, on two small nodes and with a real database.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from hqlt_lab import api
from hqlt_lab.registry import load_components, temporary_components
from hqlt_lab.study.ledger.cell_record import CellRecord

from .conftest import FAULTY, TINY, StudyRunner
from .slurm_cluster import SlurmCluster, cluster, wait_for  # noqa: F401

pytestmark = pytest.mark.slow
HQLT = [str(Path(sys.executable).parent / "hqlt"), "--with", str(FAULTY)]
TIMEOUT = 400
# A cell takes some seconds, so that it can be interrupted in the middle; only an interrupted job saves a checkpoint.
ARMS = """
arms: {a: {model.mixer: {name: faulty, seconds: 0.1}}, b: {model.mixer: {name: faulty, seconds: 0.05}}}
seeds: 2
"""
LONG = ("train.steps=40", "train.valid_every=20", "train.checkpoint_every=1000")


class SlurmStudyFolder:
    """A folder in which `hqlt run` is executed, with access to the cluster and the database."""

    def __init__(self, folder: Path, cluster: SlurmCluster, database: str) -> None:  # noqa: F811
        self.folder, self.cluster = folder, cluster
        self.environment = cluster.environment | {"HQLT_STORE": database, "OMP_NUM_THREADS": "1"}
        self.study = folder / "runs/studies/study"

    def start(self, jobs: int, overrides: tuple[str, ...] = (), only: str = "") -> "subprocess.Popen[str]":
        launcher = f"launcher: {{name: slurm, workers: {jobs}, time: '00:30:00', notice: 60}}"
        (self.folder / "study.yaml").write_text(TINY.replace("launcher: {workers: 2, threads: 1}", launcher) + ARMS)
        self.overrides = (*LONG, *overrides)
        options = [argument for override in self.overrides for argument in ("--set", override)]
        options += ["--only", only] if only else []
        pipe, both = subprocess.PIPE, subprocess.STDOUT
        return subprocess.Popen(
            [*HQLT, "run", "study.yaml", *options],
            cwd=self.folder, env=self.environment, stdout=pipe, stderr=both, text=True,
        )  # fmt: skip

    def finish(self, process: "subprocess.Popen[str]") -> str:
        try:
            output, _ = process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
        logs = "\n".join(file.read_text() for file in sorted(self.study.glob("slurm/*.log")))
        assert process.returncode == 0, output + logs
        return output

    def wait_for_array_id(self) -> str:
        """Wait until the jobs are submitted; return the id of their array."""
        file = self.study / "slurm/job.id"
        wait_for(file.exists, TIMEOUT, "a submission")
        return file.read_text().strip()

    def points(self) -> int:
        return sum(file.read_bytes().count(b"\n") for file in self.study.glob("cells/*/metrics.jsonl"))

    def records(self) -> list[CellRecord]:
        with temporary_components():
            load_components(FAULTY)
            return api.read_status(
                self.folder / "study.yaml", overrides=self.overrides, runs=self.folder / "runs"
            ).records

    def results(self) -> dict[str, tuple[str, Mapping[str, float]]]:
        return {record.key: (record.state, record.metrics) for record in self.records()}


@pytest.fixture
def study(tmp_path, cluster, postgres, monkeypatch) -> SlurmStudyFolder:  # noqa: F811
    database = postgres.create_database()
    monkeypatch.setenv("HQLT_STORE", database)  # the test reads it too
    return SlurmStudyFolder(tmp_path, cluster, database)


@pytest.fixture(scope="module")
def local_results(tmp_path_factory) -> dict[str, tuple[str, Mapping[str, float]]]:
    """Results of the cells on this machine."""
    lab = StudyRunner(tmp_path_factory.mktemp("local"))
    with temporary_components():
        load_components(FAULTY)
        experiment = lab.experiment(ARMS, overrides=LONG)
        lab.run(experiment)
        return {record.key: (record.state, record.metrics) for record in lab.records(experiment)}


def test_array_gives_the_results_of_one_machine_and_is_submitted_once(study, local_results):
    study.cluster.run_command("scontrol", "update", "nodename=ALL", "state=drain", "reason=test")  # jobs stay pending
    try:
        first = study.start(2)
        array_id = study.wait_for_array_id()
        second = study.start(2)
        assert any("This study already has jobs in SLURM: 2 pending" in line for line in second.stdout)
        second.send_signal(signal.SIGINT)
        output, _ = second.communicate(timeout=TIMEOUT)
    finally:
        study.cluster.run_command("scontrol", "update", "nodename=ALL", "state=resume")
    assert (second.returncode, f"    scancel {array_id}\n" in output) == (130, True), output
    assert f"Submitted to SLURM: array {array_id} of 2 jobs" in study.finish(first)
    assert study.wait_for_array_id() == array_id
    assert study.results() == local_results
    assert [record.attempts for record in study.records()] == [1, 1, 1, 1]
    assert len(list(study.study.glob("slurm/*.log"))) == 2


@pytest.mark.skipif(
    "HQLT_TEST_REQUEUE" not in os.environ,
    reason="on two busy cores SLURM sometimes does not start the requeued job within the time limit; "
    "set HQLT_TEST_REQUEUE=1 to run it",
)
def test_job_that_is_warned_or_requeued_resumes_from_its_checkpoint(study, local_results):
    process = study.start(1)
    job = f"{study.wait_for_array_id()}_1"
    state = lambda: study.cluster.run_command("squeue", "--noheader", "--format=%T", f"--jobs={job}").strip()  # noqa: E731

    def is_running() -> bool:
        """Return whether the job runs; let a pending one start now, not two minutes after it was requeued."""
        if state() == "PENDING":
            # SLURM holds a job whose start failed on a busy machine
            study.cluster.run_command("scontrol", "release", job)
            study.cluster.run_command("scontrol", "update", f"jobid={job}", "starttime=now")
        return state() == "RUNNING"

    for disturbance in (["scancel", "--batch", "--signal=USR1", job], ["scontrol", "requeue", job]):
        before = study.points()
        wait_for(lambda before=before: is_running() and study.points() > before + 10, TIMEOUT, "training")
        study.cluster.run_command(*disturbance)  # the first is what SLURM sends before the time limit
        wait_for(lambda: state() == "PENDING", 60, "a requeued job")
    wait_for(is_running, TIMEOUT, "a restarted job")
    study.finish(process)
    assert study.results() == local_results
    assert sorted(record.attempts for record in study.records()) == [1, 1, 1, 3]
    disturbed = max(study.records(), key=lambda record: record.attempts).folder
    assert (disturbed / "log.txt").read_text().count("The run was stopped and saved at step") == 2
    lines = [json.loads(line) for line in (disturbed / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "train/loss" in line["metrics"]] == list(range(1, 41))


@pytest.mark.skipif(shutil.which("srun") is None, reason="a run over two nodes needs srun")
def test_cell_on_two_nodes_gives_the_result_of_one_process(study, local_results):
    study.finish(study.start(1, overrides=("trainer.nodes=2",), only="arm=b,seed=0"))
    (record,) = (record for record in study.records() if record.state != "waiting")
    assert (record.arm, record.seed, record.state, record.attempts) == ("b", 0, "done", 1)
    assert record.metrics == pytest.approx(local_results[record.key][1], abs=1e-4)
    assert (record.folder / "process.log").read_text().count("Initializing distributed") == 2
