"""What can be said about Ray without starting it: requests, room, addresses, and what is told in a cell's folder."""

import socket
import sys

import pytest

from hqlt_lab.errors import ConfigError
from hqlt_lab.registry import build
from hqlt_lab.study import ray_cluster, worker
from hqlt_lab.study.post import ANSWERS, ORDERS, Post
from hqlt_lab.study.ray_cluster import connect, find, places, request, room
from hqlt_lab.study.ray_task import Ear, obstacles, work
from hqlt_lab.track.provenance import lab as lab_code

SMALL, LARGE = {"CPU": 4.0, "memory": 8.0 * 2**30}, {"CPU": 16.0, "GPU": 2.0, "memory": 64.0 * 2**30}


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """A machine on which no cluster was started, and nobody says where there is one."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def someone():
    """An address at which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def silent(someone):
    """An address at which nobody does: one that was free a moment ago."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    return address


def test_a_cell_asks_for_what_the_file_says():
    assert request(2, 0.5, 4) == {"CPU": 2, "GPU": 0.5, "memory": 4 * 2**30}
    assert request(1, 0, None) == {"CPU": 1}
    with pytest.raises(ConfigError, match=r"1.5 is neither a part of one GPU nor a number of whole ones"):
        request(1, 1.5, None)


def test_devices_decide_where_no_gpus_are_asked_for(lab):
    launcher = build("launcher", {"name": "ray", "cpus": 2})
    experiment = lab.experiment("seeds: 1", overrides=("trainer.accelerator=gpu", "trainer.devices=4"))
    cell = experiment.cell(experiment.arms[0], {}, 0)
    assert launcher.need(cell, there=8) == {"CPU": 2, "GPU": 4}
    (alike,) = launcher.needs([cell] * 3, there=8)
    assert alike == {"CPU": 2, "GPU": 4}


@pytest.mark.parametrize(
    ("need", "count"),
    [
        ({"CPU": 1}, 20),
        ({"CPU": 3}, 1 + 5),
        ({"CPU": 0.5}, 40),
        ({"CPU": 1, "GPU": 1}, 2),
        ({"CPU": 1, "GPU": 0.4}, 4),  # two on each: none has a fifth of one GPU and a fifth of the other
        ({"CPU": 1, "memory": 6 * 2**30}, 1 + 10),
        ({"CPU": 1, "GPU": 4}, 0),
    ],
)
def test_as_many_cells_fit_as_fit_on_single_machines(need, count):
    assert places(need, [SMALL, LARGE]) == count


def test_what_no_machine_has_is_told():
    assert room({"CPU": 1}, [SMALL]) == 4
    with pytest.raises(ConfigError) as told:
        room({"CPU": 64}, [SMALL, LARGE])
    assert str(told.value) == (
        "launcher: a cell asks for 64 CPUs, and no machine of the cluster has that. "
        "The most that any of them has: 16 CPUs, 2 GPUs, 64 GB of memory."
    )


def test_an_option_that_is_too_small_is_told():
    with pytest.raises(ConfigError, match=r"cpus: at least 0.01 is needed, got 0\.0"):
        build("launcher", {"name": "ray", "cpus": 0.0})


def test_without_ray_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"Ray is not installed. .* pip install -c .* -e '.\[ray\]'"):
        connect(None)


def test_the_launcher_does_not_hide_the_library():
    build("launcher", "ray")
    assert sys.modules["hqlt_lab.study.launchers.ray"] is not sys.modules.get("ray")


def test_a_cluster_is_looked_for_where_ray_looks(nowhere, someone, monkeypatch):
    assert find(None) == find("local") == "local"
    assert find(someone) == someone
    (nowhere / "ray").mkdir()
    (nowhere / "ray/ray_current_cluster").write_text(someone)
    assert find(None) == find("auto") == someone
    assert find("local") == "local"
    monkeypatch.setenv("RAY_ADDRESS", someone)
    (nowhere / "ray/ray_current_cluster").unlink()
    assert find(None) == find("auto") == someone


def test_what_is_left_of_a_dead_cluster_is_not_waited_for(nowhere, silent):
    (nowhere / "ray").mkdir()
    (nowhere / "ray/ray_current_cluster").write_text(silent)
    assert find(None) == "local"


def test_an_address_at_which_nobody_answers_is_told(nowhere, silent, monkeypatch):
    monkeypatch.setattr(ray_cluster, "KNOCK", 0.5)
    for address in (silent, "nonsense"):
        with pytest.raises(ConfigError, match=f"launcher.address: at {address} nobody answers. Start one with"):
            find(address)
    with pytest.raises(ConfigError, match="no Ray cluster runs on this machine"):
        find("auto")
    with pytest.raises(ConfigError, match="is for Ray's client"):
        find("ray://head:10001")
    monkeypatch.setenv("RAY_ADDRESS", silent)
    with pytest.raises(ConfigError, match=f"at {silent} nobody answers"):
        find(None)


def test_words_of_an_older_attempt_are_nobodys_concern(tmp_path):
    old = Post.open(tmp_path)
    old.order("stop")
    old.answer("failed", {"why": "it was late"})
    new = Post.open(tmp_path)
    assert new.orders() == {"train"}
    assert new.verdict() is None
    new.answer("taken", {"machine": "a"})
    new.answer("ended", {"metrics": {"test/accuracy": 0.1 + 0.2}})
    assert new.verdict() == ("ended", {"metrics": {"test/accuracy": 0.1 + 0.2}})
    assert old.verdict() == ("failed", {"why": "it was late"})


def test_a_word_that_a_crash_tore_does_not_spoil_the_next(tmp_path):
    post = Post.open(tmp_path)
    with (tmp_path / ANSWERS).open("a") as file:
        file.write('{"token": "' + post.token)
    post.answer("interrupted", {})
    assert post.verdict() == ("interrupted", {})


def order_for(post: Post, **other: object) -> dict:
    return {"here": str(post.folder), "with": [], "lab": lab_code(), **other}


def test_a_machine_that_sees_something_else_says_so(tmp_path):
    post = Post.open(tmp_path / "cell")
    seen = order_for(post)
    assert list(obstacles(seen, post)) == []
    (unseen,) = obstacles(seen | {"with": ["/nowhere/part.py"]}, post)
    assert unseen.startswith("does not see /nowhere/part.py")
    (other,) = obstacles(seen | {"lab": "0123"}, post)
    assert other.startswith("has another hqlt_lab than the one that runs the study.")
    (post.folder / ORDERS).unlink()
    (blind,) = obstacles(seen, post, patience=0.2)
    assert blind.startswith(f"does not see the folder {post.folder} of a cell. All machines must see it")


def test_a_machine_that_is_in_the_way_is_no_verdict_on_the_cell(lab, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    experiment = lab.experiment("seeds: 1")
    post = Post.open(tmp_path / "cell")
    order = worker.order_for(experiment.cell(experiment.arms[0], {}, 0), post.folder, 1, gpus="")
    order |= {"token": post.token, "here": str(tmp_path), "lab": lab_code(), "threads": 1}
    order["code"] |= {"mixer sum": "0123"}
    assert work(order).startswith("The file of mixer sum has changed since the run began.")
    assert set(post.answers()) == {"taken"} and post.verdict() is None


def test_nobody_is_stopped_after_the_cell(tmp_path):
    post = Post.open(tmp_path)
    with Ear(post) as ear:
        post.order("give up")
        assert ear.given_up.wait(5)
    ear.stop()  # it would end this process
    post.order("stop")
    ear.join(5)
    assert not ear.is_alive()
