"""Ray executor without a cluster: resource requests, slots, addresses, and the mailbox in a cell's folder."""

import socket
import sys

import pytest

from hqlt_lab.registry import build
from hqlt_lab.study.executors import ray_executor, worker
from hqlt_lab.study.executors.file_mailbox import COMMANDS_FILE, REPLIES_FILE, FileMailbox
from hqlt_lab.study.executors.ray_executor import (
    connect_cluster,
    count_slots,
    find_cluster,
    make_resource_request,
    require_slots,
)
from hqlt_lab.study.executors.ray_task import MailboxListener, preflight_errors, run_ray_task
from hqlt_lab.track.provenance import lab_hash
from tests.issues import raises_issue

SMALL_NODE, LARGE_NODE = {"CPU": 4.0, "memory": 8.0 * 2**30}, {"CPU": 16.0, "GPU": 2.0, "memory": 64.0 * 2**30}


@pytest.fixture
def ray_folder(monkeypatch, tmp_path):
    """Ray's temporary folder on a machine without a cluster and without RAY_ADDRESS."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def open_address():
    """An address that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed_address(open_address):
    """An address that does not accept connections: a port that was free a moment ago."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{unused.getsockname()[1]}"


def test_resource_request_follows_the_options():
    assert make_resource_request(2, 0.5, 4) == {"CPU": 2, "GPU": 0.5, "memory": 4 * 2**30}
    assert make_resource_request(1, 0, None) == {"CPU": 1}
    with raises_issue("launcher.gpus", "invalid_gpu_fraction"):
        make_resource_request(1, 1.5, None)


def test_gpus_default_to_the_number_of_devices(lab):
    launcher = build("launcher", {"name": "ray", "cpus": 2})
    experiment = lab.experiment("seeds: 1", overrides=("trainer.accelerator=gpu", "trainer.devices=4"))
    cell = experiment.make_cell(experiment.arms[0], {}, 0)
    assert launcher.cell_request(cell, available_gpus=8) == {"CPU": 2, "GPU": 4}
    (request,) = launcher.distinct_requests([cell] * 3, available_gpus=8)
    assert request == {"CPU": 2, "GPU": 4}


@pytest.mark.parametrize(
    ("resource_request", "slots"),
    [
        ({"CPU": 1}, 20),
        ({"CPU": 3}, 1 + 5),
        ({"CPU": 0.5}, 40),
        ({"CPU": 1, "GPU": 1}, 2),
        ({"CPU": 1, "GPU": 0.4}, 4),  # two per GPU: a cell cannot combine the remaining fifths of two GPUs
        ({"CPU": 1, "memory": 6 * 2**30}, 1 + 10),
        ({"CPU": 1, "GPU": 4}, 0),
    ],
)
def test_slots_are_counted_per_node(resource_request, slots):
    assert count_slots(resource_request, [SMALL_NODE, LARGE_NODE]) == slots


def test_request_that_no_node_can_satisfy_is_rejected():
    assert require_slots({"CPU": 1}, [SMALL_NODE]) == 4
    with raises_issue("launcher", "cluster_too_small"):
        require_slots({"CPU": 64}, [SMALL_NODE, LARGE_NODE])


def test_option_below_its_minimum_is_rejected():
    with raises_issue("launcher.cpus", "below_minimum"):
        build("launcher", {"name": "ray", "cpus": 0.0})


def test_error_without_ray_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with raises_issue("launcher", "package_not_installed"):
        connect_cluster(None)


def test_launcher_module_does_not_shadow_the_ray_library():
    build("launcher", "ray")
    assert sys.modules["hqlt_lab.study.launchers.ray"] is not sys.modules.get("ray")


def test_cluster_is_found_where_ray_looks_for_it(ray_folder, open_address, monkeypatch):
    assert find_cluster(None) == find_cluster("local") == "local"
    assert find_cluster(open_address) == open_address
    (ray_folder / "ray").mkdir()
    (ray_folder / "ray/ray_current_cluster").write_text(open_address)
    assert find_cluster(None) == find_cluster("auto") == open_address
    assert find_cluster("local") == "local"
    monkeypatch.setenv("RAY_ADDRESS", open_address)
    (ray_folder / "ray/ray_current_cluster").unlink()
    assert find_cluster(None) == find_cluster("auto") == open_address


def test_address_file_of_a_dead_cluster_is_ignored(ray_folder, closed_address):
    (ray_folder / "ray").mkdir()
    (ray_folder / "ray/ray_current_cluster").write_text(closed_address)
    assert find_cluster(None) == "local"


def test_unreachable_address_is_rejected(ray_folder, closed_address, monkeypatch):
    monkeypatch.setattr(ray_executor, "CONNECT_TIMEOUT", 0.5)
    for address in (closed_address, "nonsense"):
        with raises_issue("launcher.address", "cluster_not_found"):
            find_cluster(address)
    with raises_issue("launcher.address", "cluster_not_found"):
        find_cluster("auto")
    with raises_issue("launcher.address", "ray_client_address"):
        find_cluster("ray://head:10001")
    monkeypatch.setenv("RAY_ADDRESS", closed_address)
    with raises_issue("launcher.address", "cluster_not_found"):
        find_cluster(None)


def test_messages_of_an_older_attempt_are_ignored(tmp_path):
    old = FileMailbox.create(tmp_path)
    old.send_command("stop")
    old.send_reply("failed", {"why": "it was late"})
    new = FileMailbox.create(tmp_path)
    assert new.read_commands() == {"train"}
    assert new.read_result() is None
    new.send_reply("started", {"machine": "a"})
    new.send_reply("ended", {"metrics": {"test/accuracy": 0.1 + 0.2}})
    assert new.read_result() == ("ended", {"metrics": {"test/accuracy": 0.1 + 0.2}})
    assert old.read_result() == ("failed", {"why": "it was late"})


def test_message_torn_by_a_crash_does_not_corrupt_the_next(tmp_path):
    mailbox = FileMailbox.create(tmp_path)
    with (tmp_path / REPLIES_FILE).open("a") as file:
        file.write('{"token": "' + mailbox.token)
    mailbox.send_reply("interrupted", {})
    assert mailbox.read_result() == ("interrupted", {})


def test_machine_that_sees_other_files_or_code_reports_it(tmp_path):
    mailbox = FileMailbox.create(tmp_path / "cell")
    job_spec = {"working_dir": str(mailbox.folder), "component_files": [], "lab_hash": lab_hash()}
    assert list(preflight_errors(job_spec, mailbox)) == []
    (missing_file,) = preflight_errors(job_spec | {"component_files": ["/nowhere/component.py"]}, mailbox)
    assert missing_file.startswith("cannot access /nowhere/component.py")
    (other_code,) = preflight_errors(job_spec | {"lab_hash": "0123"}, mailbox)
    assert other_code.startswith("has a different version of hqlt_lab.")
    (mailbox.folder / COMMANDS_FILE).unlink()
    (missing_folder,) = preflight_errors(job_spec, mailbox, timeout=0.2)
    assert missing_folder.startswith(
        f"cannot access the folder {mailbox.folder} of a cell. It must have the same path on all machines"
    )


def test_attempt_blocked_by_its_machine_is_no_result_of_the_cell(lab, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    experiment = lab.experiment("seeds: 1")
    mailbox = FileMailbox.create(tmp_path / "cell")
    cell = experiment.make_cell(experiment.arms[0], {}, 0)
    job_spec = worker.make_job_spec(cell, mailbox.folder, 1, visible_devices="")
    job_spec |= {"token": mailbox.token, "working_dir": str(tmp_path), "lab_hash": lab_hash(), "threads": 1}
    job_spec["code"] |= {"mixer sum": "0123"}
    assert "mixer sum" in run_ray_task(job_spec)
    assert set(mailbox.read_replies()) == {"started"} and mailbox.read_result() is None


def test_process_is_not_interrupted_after_the_cell_has_ended(tmp_path):
    mailbox = FileMailbox.create(tmp_path)
    with MailboxListener(mailbox) as listener:
        mailbox.send_command("prune")
        assert listener.prune_requested.wait(5)
    listener.interrupt_process()  # a signal would end this process
    mailbox.send_command("stop")
    listener.join(5)
    assert not listener.is_alive()
