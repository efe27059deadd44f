"""A study on a Ray cluster of two nodes gives the same results as on this machine, whatever dies in between."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from hqlt_lab.cli.terminal.exit_codes import ExitCode
from hqlt_lab.registry import build

from .conftest import FAULTY, TINY
from .ray_nodes import RayNodes
from .study_folder import STUDY, StudyFolder, is_alive

pytest.importorskip("ray", reason="Ray is not installed: pip install -c constraints.txt -e '.[ray]'")
pytestmark = pytest.mark.slow
LOCAL_LAUNCHER = "launcher: {workers: 2, threads: 1}"
TWO_SEEDS = STUDY.replace("seeds: 3", "seeds: 2")


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv(
            "RAY_worker_niceness", "0"
        )  # otherwise Ray's workers have low priority and starve on a busy machine
        ray_nodes = RayNodes()
        yield ray_nodes
        ray_nodes.cluster.shutdown()


class RayStudyFolder(StudyFolder):
    """A folder in which `hqlt run` is executed, with another launcher."""

    def __init__(self, folder: Path, launcher: str, study: str = TWO_SEEDS) -> None:
        super().__init__(folder)
        (folder / "study.yaml").write_text(TINY.replace(LOCAL_LAUNCHER, f"launcher: {launcher}") + study)


@pytest.fixture
def study_folder(tmp_path, nodes) -> RayStudyFolder:
    # without retries: attempts that fail for external reasons must not count
    return RayStudyFolder(tmp_path, f"{{name: ray, address: '{nodes.cluster.address}', retries: 0}}")


@pytest.fixture(scope="module")
def local_study(tmp_path_factory) -> StudyFolder:
    """The study trained with the local launcher."""
    study_folder = RayStudyFolder(tmp_path_factory.mktemp("local"), "{workers: 2, threads: 1}")
    study_folder.finish()
    return study_folder


def assert_same_as_local(study_folder: StudyFolder, local_study: StudyFolder) -> None:
    """Assert that every cell is done once, with bit-identical metrics, and has its metrics in MLflow once."""
    assert study_folder.results() == local_study.results()
    assert {state for state, _ in study_folder.results().values()} == {"done"}
    assert study_folder.tracked() == local_study.tracked() == (4, 0, {25})


def wait_until(condition: Callable[[], object], seconds: float = 240) -> None:
    """Wait long: a new Ray process imports its libraries first, which takes long on a busy machine."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_results_are_the_same_as_with_the_local_launcher(study_folder, local_study):
    output = study_folder.finish()
    assert "4 to train, 2 at a time" in output
    assert_same_as_local(study_folder, local_study)
    assert study_folder.tries() == [1, 1, 1, 1]


def find_raylets() -> set[int]:
    """Return the process ids of the nodes of all clusters on this machine."""
    return {process.pid for process in psutil.process_iter(["name"]) if process.info["name"] == "raylet"}


def test_local_cluster_is_started_for_a_study_and_ends_with_it(tmp_path, local_study):
    before, study_folder = find_raylets(), RayStudyFolder(tmp_path, "{name: ray, address: local, retries: 0}")
    study_folder.finish()
    assert_same_as_local(study_folder, local_study)
    wait_until(lambda: find_raylets() <= before)


def test_pruned_cell_reports_a_pruned_event(lab, nodes):
    import ray

    # with 100,000 steps training contains all short sequences, so the test set has only longer ones
    experiment = lab.experiment("seeds: 1", overrides=("train.steps=100000", "task.test_length=[9, 16]"))
    cell = experiment.make_cell(experiment.arms[0], {}, 0)
    ray.init(address=nodes.cluster.address, log_to_driver=False)
    try:
        executor = build("launcher", {"name": "ray"}).make_executor([cell])
        executor.start_cell("key", cell, lab.folder / "cell", 1)
        kinds, deadline = [], time.monotonic() + 120
        while "pruned" not in kinds and time.monotonic() < deadline:
            kinds += [event.kind for event in executor.poll_events(0.25)]
            if "metrics" in kinds:
                executor.request_prune("key")
        assert (kinds[0], kinds[-1], set(kinds)) == ("metrics", "pruned", {"metrics", "pruned"})
        executor.close()
        assert ray.is_initialized()  # the executor does not close a connection that it did not open
    finally:
        ray.shutdown()


def test_failing_cells_do_not_stop_the_others(tmp_path, nodes):
    faulty_arm = "{{model.mixer: {{name: faulty, how: {0}, step: 6}}}}"
    arms = ", ".join([*(f"{how}: {faulty_arm.format(how)}" for how in ("raise", "die", "hang")), "good: {}"])
    launcher = f"{{name: ray, address: '{nodes.cluster.address}', retries: 0, time_limit: 20}}"
    study_folder = RayStudyFolder(tmp_path, launcher, f"arms: {{{arms}}}\nseeds: 1\n")
    process = study_folder.start()
    output, _ = process.communicate(timeout=300)
    assert process.returncode == ExitCode.PARTIAL_FAILURE and "(raylet)" not in output, output
    assert {record.arm: (record.state, record.attempts) for record in study_folder.records()} == {
        "raise": ("failed", 1),
        "die": ("failed", 1),
        "hang": ("failed", 1),
        "good": ("done", 1),
    }
    why = {record.arm: record.why for record in study_folder.records()}
    assert why["raise"].endswith("raised RuntimeError: the matrix is not in the mood.")
    assert why["die"].endswith("was killed, probably because the machine ran out of memory.")
    assert why["hang"] == "The cell exceeded the time limit of 20 s."


def test_component_that_changes_during_the_run_fails_no_cell(study_folder, tmp_path):
    component_file = tmp_path / "component.py"
    component_file.write_text(FAULTY.read_text())
    study_folder.command[study_folder.command.index("--with") + 1] = str(component_file)
    process = study_folder.start()
    wait_until(
        lambda: list(study_folder.study.glob("cells/*/commands.jsonl"))
    )  # read by the coordinator, but by no task yet
    component_file.write_text(FAULTY.read_text() + "# other\n")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == ExitCode.ERROR and "Traceback" not in output, output
    assert "file of mixer faulty has changed" in " ".join(output.split())
    assert [record.state for record in study_folder.records()] == ["waiting"] * 4


def test_full_disk_fails_no_cell(study_folder, small_disk):
    """Only the disk of the cells' folders is full, not that of the ledger."""
    study_folder.study.mkdir(parents=True)
    (study_folder.study / "cells").symlink_to(small_disk.folder)
    process = study_folder.start()
    wait_until(lambda: study_folder.points() >= 8)
    small_disk.fill()
    output, _ = process.communicate(timeout=300)
    assert process.returncode == ExitCode.ERROR and "Traceback" not in output, output
    assert f"the disk {small_disk.folder} is full" in " ".join(output.split())
    assert {record.state for record in study_folder.records()} <= {"waiting", "done"}


def test_request_that_no_node_can_satisfy_is_rejected_before_any_cell_starts(tmp_path, nodes):
    study_folder = RayStudyFolder(tmp_path, f"{{name: ray, address: '{nodes.cluster.address}', cpus: 64}}")
    process = study_folder.start()
    output, _ = process.communicate(timeout=120)
    assert process.returncode not in (0, None)
    assert "launcher: a cell needs 64 CPUs" in " ".join(output.split())
    assert study_folder.tries() == [0, 0, 0, 0]


def test_study_resumes_after_the_coordinator_was_interrupted_and_killed(study_folder, local_study, nodes):
    process = study_folder.start()
    wait_until(lambda: study_folder.points() >= 8)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130 and "All progress is saved" in output
    assert list(study_folder.study.glob("cells/*/last.ckpt"))

    before, process = study_folder.points(), study_folder.start()
    wait_until(lambda: study_folder.points() >= before + 8)
    training = [process for node in nodes.nodes for process in nodes.training_processes(node)]
    assert training
    process.kill()
    process.communicate()
    # Ray ends the tasks of a dead driver, so that the next coordinator's tasks do not train the same cells
    wait_until(lambda: not any(map(is_alive, training)), 10)
    study_folder.finish()
    assert_same_as_local(study_folder, local_study)


def test_node_that_dies_costs_no_retry(study_folder, local_study, nodes):
    process = study_folder.start()
    wait_until(lambda: study_folder.points() >= 8 and nodes.training_processes(nodes.nodes[1]))
    nodes.cluster.remove_node(nodes.nodes[1], allow_graceful=False)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert_same_as_local(study_folder, local_study)
    assert sorted(study_folder.tries()) == [1, 1, 1, 2]
