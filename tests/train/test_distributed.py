"""Training in two processes equals training in one, and both stop, resume and end together."""

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from hqlt_lab.errors import ConfigError, ConfigIssue, HqltError
from hqlt_lab.experiment.cell import cell_from_dict
from hqlt_lab.registry import load_components
from hqlt_lab.rundir.outcome import read_outcome
from hqlt_lab.train.describe_failure import describe_failure
from hqlt_lab.train.distributed.fit_in_subprocess import fit_in_subprocess, read_outcome_or_raise, relay_metrics
from hqlt_lab.train.distributed.rank_main import end_message
from hqlt_lab.train.fit import fit, fit_in_process
from hqlt_lab.train.interrupt import RunInterrupted
from tests.issues import raises_issue
from tests.train.conftest import MetricsLog, equal_weights, last_weights, tiny_cell

NONDETERMINISTIC_MIXERS = Path(__file__).parent / "nondeterministic_mixers.py"
TWO_PROCESSES = {"devices": 2, "accumulate": 3, "steps": 10}


class InterruptingLog(MetricsLog):
    """Raises KeyboardInterrupt once a step is logged, and then sends SIGTERM as well."""

    def __call__(self, step, metrics):
        self.append((step, metrics))
        if step == self.stop_at:
            raise KeyboardInterrupt
        if step > self.stop_at:
            os.kill(os.getpid(), signal.SIGTERM)


def run_rank(rank, port, cell_dict, folder, stop_at):
    """Train in one of two processes.  Rank 0 stores the metrics, and only rank 0 receives a signal."""
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "NODE_RANK": "0"}
    os.environ["LOCAL_RANK"] = str(rank)
    log = MetricsLog(stop_at)
    load_components(NONDETERMINISTIC_MIXERS)
    try:
        fit_in_process(cell_from_dict(cell_dict), folder, log)
    except RunInterrupted as error:
        assert "saved at step 6" in str(error)
    if rank == 0:
        (folder / "points.json").write_text(json.dumps(log.timeless_points()))


def fit_two_processes(cell, folder, stop_at=None, target=run_rank, timeout=120):
    """Train in two processes of a forkserver with preloaded modules, which takes seconds instead of a minute."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["hqlt_lab.train.fit"])
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    processes = [
        context.Process(target=target, args=(rank, port, cell.to_dict(), folder, stop_at)) for rank in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout)
        assert process.exitcode == 0
    return [tuple(point) for point in json.loads((folder / "points.json").read_text())]


def test_two_processes_train_like_one_and_resume_where_they_stopped(tmp_path):
    single_log = MetricsLog()
    one = fit(tiny_cell(steps=10), tmp_path / "one", single_log)
    points = fit_two_processes(tiny_cell(**TWO_PROCESSES), tmp_path / "two")
    two = read_outcome(tmp_path / "two")
    torch.testing.assert_close(last_weights(tmp_path / "one"), last_weights(tmp_path / "two"), rtol=1e-6, atol=1e-6)
    assert {name: value for name, value in one.metrics.items() if "accuracy" in name} == {
        name: value for name, value in two.metrics.items() if "accuracy" in name
    }
    assert one.errors == pytest.approx(two.errors, rel=1e-4) and set(one.errors) == {
        name for name in one.metrics if name.startswith("test/")
    }
    single_points = single_log.timeless_points()
    assert [point[:2] for point in single_points] == [point[:2] for point in points]
    assert [point[2] for point in single_points] == pytest.approx([point[2] for point in points], rel=1e-5)

    before = fit_two_processes(tiny_cell(**TWO_PROCESSES), tmp_path / "halved", stop_at=5)
    after = fit_two_processes(tiny_cell(**TWO_PROCESSES), tmp_path / "halved")
    assert equal_weights(last_weights(tmp_path / "two"), last_weights(tmp_path / "halved"))
    assert read_outcome(tmp_path / "halved").metrics == two.metrics
    assert before + after == points
    assert two.repeatable is True and read_outcome(tmp_path / "halved").repeatable is True


def test_a_run_in_a_child_process_relays_its_metrics_and_stops_on_request(tmp_path):
    straight, before, after = MetricsLog(), InterruptingLog(stop_at=5), MetricsLog()
    outcome = fit(tiny_cell(), tmp_path / "straight", straight)
    with pytest.raises(RunInterrupted, match="saved at step"):
        fit_in_subprocess(tiny_cell(), tmp_path / "child", before)
    assert fit(tiny_cell(), tmp_path / "child", after).metrics == outcome.metrics
    assert equal_weights(last_weights(tmp_path / "straight"), last_weights(tmp_path / "child"))
    assert before.timeless_points() + after.timeless_points() == straight.timeless_points()
    assert fit_in_subprocess(tiny_cell(), tmp_path / "straight", after) == outcome


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert condition()


def test_lines_that_are_not_messages_of_the_child_process_are_ignored(caplog):
    lines = [
        "a library printed this",
        "[" * 100_000,
        '{"step": 1, "metrics": {"loss": NaN}}',
        "null",
        '{"why": "x"}',
        "3",
    ]
    command = [sys.executable, "-c", "import sys; print(sys.stdin.read())"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stdin.write("\n".join(lines))
        process.stdin.close()
        log = MetricsLog()
        assert relay_metrics(process, log) == {"why": "x"}
    assert [step for step, _ in log] == [1] and "a library printed this" in caplog.text


@pytest.mark.slow
def test_child_processes_end_when_their_parent_is_killed(tmp_path):
    script = (
        "from pathlib import Path; from tests.train.conftest import tiny_cell; from hqlt_lab.train.fit import fit;"
        f"fit(tiny_cell(devices=2, steps=1_000_000), Path({str(tmp_path)!r}))"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as parent:
        wait_until(lambda: (tmp_path / "last.ckpt").exists() or parent.poll() is not None, 120)
        children = psutil.Process(parent.pid).children(recursive=True)
        parent.kill()
    assert len(children) == 2
    wait_until(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children), 60)


@pytest.mark.slow
def test_lightning_starts_both_processes_and_they_stop_and_resume_together(tmp_path):
    cell, straight, before, after = tiny_cell(**TWO_PROCESSES), MetricsLog(), InterruptingLog(stop_at=5), MetricsLog()
    outcome = fit(cell, tmp_path / "straight", straight)
    with pytest.raises(RunInterrupted, match="saved at step"):
        fit(cell, tmp_path / "halved", before)
    assert fit(cell, tmp_path / "halved", after).metrics == outcome.metrics
    assert equal_weights(last_weights(tmp_path / "straight"), last_weights(tmp_path / "halved"))
    assert before.timeless_points() + after.timeless_points() == straight.timeless_points()


@pytest.mark.slow
def test_two_processes_diverge_together(tmp_path):
    outcome = fit(tiny_cell(devices=2, lr=1e30, schedule="constant", clip=None), tmp_path)
    assert outcome.status == "diverged" and (tmp_path / "diverged.pt").exists()


def test_an_error_of_the_child_keeps_its_issues_and_what_tells_whether_it_repeats(tmp_path):
    def relay(error):
        with pytest.raises(HqltError) as raised:
            read_outcome_or_raise(tmp_path, json.loads(json.dumps(end_message(error))))
        return raised.value

    issue = ConfigIssue("train.batch_size", "batch_not_divisible", "It is not divisible.", arms=("a, b",))
    assert relay(ConfigError(issue)).issues == (issue,)
    failure = describe_failure(RuntimeError("the same in every attempt"))
    assert failure.signature and describe_failure(relay(RuntimeError("the same in every attempt"))) == failure


@pytest.mark.slow
def test_an_error_in_the_child_process_is_raised_in_the_parent(tmp_path):
    with raises_issue("train.batch_size", "batch_not_divisible", ConfigError):
        fit(tiny_cell(devices=2, accumulate=4), tmp_path)
