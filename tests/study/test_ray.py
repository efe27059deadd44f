"""A study on a Ray cluster of two nodes: what it gives is what this machine gives, whatever dies in between."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from hqlt_lab.cli.exits import Exit
from hqlt_lab.registry import build

from .conftest import FAULTY, TINY
from .place import STUDY, Place
from .ray_nodes import Nodes

pytest.importorskip("ray", reason="Ray is not installed: pip install -c constraints.txt -e '.[ray]'")
pytestmark = pytest.mark.slow
HERE = "launcher: {workers: 2, threads: 1}"
FEWER = STUDY.replace("seeds: 3", "seeds: 2")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")  # Ray's workers give way to everyone: on a busy machine, for ever
        found = Nodes()
        yield found
        found.cluster.shutdown()


class OnRay(Place):
    """A folder in which the command is typed, for a study whose launcher is another."""

    def __init__(self, folder: Path, launcher: str, study: str = FEWER) -> None:
        super().__init__(folder)
        (folder / "study.yaml").write_text(TINY.replace(HERE, f"launcher: {launcher}") + study)


@pytest.fixture
def place(tmp_path, nodes) -> OnRay:
    # no attempt is left for a cell that failed: what is not its fault must not count
    return OnRay(tmp_path, f"{{name: ray, address: '{nodes.cluster.address}', retries: 0}}")


@pytest.fixture(scope="module")
def here(tmp_path_factory) -> Place:
    """The same study with the launcher of this machine."""
    place = OnRay(tmp_path_factory.mktemp("here"), "{workers: 2, threads: 1}")
    place.finish()
    return place


def same_as(place: Place, here: Place) -> None:
    """Each cell once, with the same numbers to the last digit, and its curve in MLflow once."""
    assert place.results() == here.results()
    assert {state for state, _ in place.results().values()} == {"done"}
    assert place.tracked() == here.tracked() == (4, 0, {25})


def wait_until(true: Callable[[], object], seconds: float = 240) -> None:
    """A new process of Ray's loads its libraries first, which takes long on a busy machine."""
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_each_cell_gives_what_it_gives_on_this_machine(place, here):
    told = place.finish()
    assert "4 to train, 2 at a time" in told
    same_as(place, here)
    assert place.tries() == [1, 1, 1, 1]


def raylets() -> set[int]:
    """The nodes of all clusters on this machine."""
    return {one.pid for one in psutil.process_iter(["name"]) if one.info["name"] == "raylet"}


def test_a_cluster_of_its_own_is_started_for_a_study_and_ends_with_it(tmp_path, here):
    before, place = raylets(), OnRay(tmp_path, "{name: ray, address: local, retries: 0}")
    place.finish()
    same_as(place, here)
    wait_until(lambda: raylets() <= before)


def test_a_cell_that_is_given_up_says_so(lab, nodes):
    import ray

    experiment = lab.experiment("seeds: 1", overrides=("train.steps=100000",))
    cell = experiment.cell(experiment.arms[0], {}, 0)
    ray.init(address=nodes.cluster.address, log_to_driver=False)
    try:
        crew = build("launcher", {"name": "ray"}).crew([cell])
        crew.start("key", cell, lab.folder / "cell", 1)
        words, until = [], time.monotonic() + 120
        while "pruned" not in words and time.monotonic() < until:
            words += [event.word for event in crew.events(0.25)]
            if "point" in words:
                crew.give_up("key")
        assert (words[0], words[-1], set(words)) == ("point", "pruned", {"point", "pruned"})
        crew.close()
        assert ray.is_initialized()  # who joined the cluster before leaves it later
    finally:
        ray.shutdown()


def test_bad_cells_do_not_disturb_the_others(tmp_path, nodes):
    bad = "{{model.mixer: {{name: faulty, how: {0}, step: 6}}}}"
    arms = ", ".join([*(f"{how}: {bad.format(how)}" for how in ("raise", "die", "hang")), "good: {}"])
    launcher = f"{{name: ray, address: '{nodes.cluster.address}', retries: 0, time_limit: 20}}"
    place = OnRay(tmp_path, launcher, f"arms: {{{arms}}}\nseeds: 1\n")
    process = place.start()
    told, _ = process.communicate(timeout=300)
    assert process.returncode == Exit.NOT_ALL_WELL and "(raylet)" not in told, told
    assert {record.arm: (record.state, record.attempts) for record in place.records()} == {
        "raise": ("failed", 1),
        "die": ("failed", 1),
        "hang": ("failed", 1),
        "good": ("done", 1),
    }
    why = {record.arm: record.why for record in place.records()}
    assert why["raise"].endswith("raised RuntimeError: the matrix is not in the mood.")
    assert why["die"].endswith("was killed; if nobody did it, the machine ran out of memory.")
    assert why["hang"] == "The time limit of 20 s passed."


def test_a_part_that_changes_meanwhile_blames_no_cell(place, tmp_path):
    part = tmp_path / "part.py"
    part.write_text(FAULTY.read_text())
    place.command[place.command.index("--with") + 1] = str(part)
    process = place.start()
    wait_until(lambda: list(place.study.glob("cells/*/orders.jsonl")))  # the coordinator has read it, no task has
    part.write_text(FAULTY.read_text() + "# other\n")
    told, _ = process.communicate(timeout=300)
    assert process.returncode == Exit.MISTAKE and "Traceback" not in told, told
    assert "file of mixer faulty has changed since the run began. Run the same command again" in " ".join(told.split())
    assert [record.state for record in place.records()] == ["waiting"] * 4


def test_a_disk_that_is_full_blames_no_cell(place, small_disk):
    """The cells' own disk: the ledger has room for what is told of them."""
    place.study.mkdir(parents=True)
    (place.study / "cells").symlink_to(small_disk.folder)
    process = place.start()
    wait_until(lambda: place.points() >= 8)
    small_disk.fill()
    told, _ = process.communicate(timeout=300)
    assert process.returncode == Exit.MISTAKE and "Traceback" not in told, told
    assert f"the disk {small_disk.folder} is full" in " ".join(told.split())
    assert {record.state for record in place.records()} <= {"waiting", "done"}


def test_what_no_node_has_is_told_and_nothing_is_begun(tmp_path, nodes):
    place = OnRay(tmp_path, f"{{name: ray, address: '{nodes.cluster.address}', cpus: 64}}")
    process = place.start()
    told, _ = process.communicate(timeout=120)
    assert process.returncode not in (0, None)
    assert "a cell asks for 64 CPUs, and no machine of the cluster has that." in " ".join(told.split())
    assert place.tries() == [0, 0, 0, 0]


def test_stop_and_kill_the_coordinator_and_go_on(place, here, nodes):
    process = place.start()
    wait_until(lambda: place.points() >= 8)
    os.killpg(process.pid, signal.SIGINT)
    told, _ = process.communicate(timeout=120)
    assert process.returncode == 130 and "Nothing is lost" in told
    assert list(place.study.glob("cells/*/last.ckpt"))

    before, process = place.points(), place.start()
    wait_until(lambda: place.points() >= before + 8)
    family = [one for node in nodes.nodes for one in nodes.at_work(node)]
    assert family
    process.kill()
    process.communicate()
    # Ray ends the tasks of a dead driver: nobody trains a cell beside the next coordinator
    wait_until(lambda: not [one for one in family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE], 10)
    place.finish()
    same_as(place, here)


def test_a_node_that_dies_costs_no_cell_an_attempt(place, here, nodes):
    process = place.start()
    wait_until(lambda: place.points() >= 8 and nodes.at_work(nodes.nodes[1]))
    nodes.cluster.remove_node(nodes.nodes[1], allow_graceful=False)
    told, _ = process.communicate(timeout=300)
    assert process.returncode == 0, told
    same_as(place, here)
    assert sorted(place.tries()) == [1, 1, 1, 2]
