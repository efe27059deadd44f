"""Two processes learn what one does, and stop, go on and end together."""

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

from hqlt_lab.experiment.cell import cell_from
from hqlt_lab.registry import include
from hqlt_lab.train.apart import fit_apart
from hqlt_lab.train.fit import fit, fit_here
from hqlt_lab.train.interrupt import Interrupted
from hqlt_lab.train.outcome import read_outcome
from tests.train.conftest import Notebook, same, tiny, weights

RESTLESS = Path(__file__).parent / "restless.py"
PAIR = {"devices": 2, "accumulate": 3, "steps": 10}


class Impatient(Notebook):
    """Presses Ctrl-C once some step was told, and is then told to end as well."""

    def __call__(self, step, metrics):
        self.append((step, metrics))
        if step == self.stop_at:
            raise KeyboardInterrupt
        if step > self.stop_at:
            os.kill(os.getpid(), signal.SIGTERM)


def one_of_two(rank, port, told, folder, stop_at):
    """What each process does; the first keeps the record, and is the only one that is asked to stop."""
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "NODE_RANK": "0"}
    os.environ["LOCAL_RANK"] = str(rank)
    notes = Notebook(stop_at)
    include(RESTLESS)
    try:
        fit_here(cell_from(told), folder, notes)
    except Interrupted as error:
        assert "saved at step 6" in str(error)
    if rank == 0:
        (folder / "notes.json").write_text(json.dumps(notes.curves()))


def fit_pair(cell, folder, stop_at=None, work=one_of_two, patience=120):
    """Both processes from a server that has imported everything once: seconds instead of a minute."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["hqlt_lab.train.fit"])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    pair = [context.Process(target=work, args=(rank, port, cell.as_dict(), folder, stop_at)) for rank in range(2)]
    for each in pair:
        each.start()
    for each in pair:
        each.join(patience)
        assert each.exitcode == 0
    return [tuple(point) for point in json.loads((folder / "notes.json").read_text())]


def test_two_processes_learn_what_one_does_and_go_on_where_they_stopped(tmp_path):
    alone = Notebook()
    one = fit(tiny(steps=10), tmp_path / "one", alone)
    together = fit_pair(tiny(**PAIR), tmp_path / "two")
    two = read_outcome(tmp_path / "two")
    torch.testing.assert_close(weights(tmp_path / "one"), weights(tmp_path / "two"), rtol=1e-6, atol=1e-6)
    assert {name: value for name, value in one.metrics.items() if "accuracy" in name} == {
        name: value for name, value in two.metrics.items() if "accuracy" in name
    }
    assert one.errors == pytest.approx(two.errors, rel=1e-4) and set(one.errors) == {
        name for name in one.metrics if name.startswith("test/")
    }
    assert [point[:2] for point in alone.curves()] == [point[:2] for point in together]
    assert [point[2] for point in alone.curves()] == pytest.approx([point[2] for point in together], rel=1e-5)

    before = fit_pair(tiny(**PAIR), tmp_path / "halved", stop_at=5)
    after = fit_pair(tiny(**PAIR), tmp_path / "halved")
    assert same(weights(tmp_path / "two"), weights(tmp_path / "halved"))
    assert read_outcome(tmp_path / "halved").metrics == two.metrics
    assert before + after == together
    assert two.repeatable is True and read_outcome(tmp_path / "halved").repeatable is True


def test_a_run_in_its_own_process_hands_on_its_metrics_and_stops_when_asked(tmp_path):
    straight, before, after = Notebook(), Impatient(stop_at=5), Notebook()
    whole = fit(tiny(), tmp_path / "here", straight)
    with pytest.raises(Interrupted, match="saved at step"):
        fit_apart(tiny(), tmp_path / "apart", before)
    assert fit(tiny(), tmp_path / "apart", after).metrics == whole.metrics
    assert same(weights(tmp_path / "here"), weights(tmp_path / "apart"))
    assert before.curves() + after.curves() == straight.curves()
    assert fit_apart(tiny(), tmp_path / "here", after) == whole


def wait_for(truth, seconds):
    limit = time.monotonic() + seconds
    while not truth() and time.monotonic() < limit:
        time.sleep(0.1)
    assert truth()


@pytest.mark.slow
def test_the_processes_do_not_outlive_whoever_asked_for_them(tmp_path):
    script = (
        "from pathlib import Path; from tests.train.conftest import tiny; from hqlt_lab.train.fit import fit;"
        f"fit(tiny(devices=2, steps=1_000_000), Path({str(tmp_path)!r}))"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as asking:
        wait_for(lambda: (tmp_path / "last.ckpt").exists() or asking.poll() is not None, 120)
        family = psutil.Process(asking.pid).children(recursive=True)
        asking.kill()
    assert len(family) == 2
    wait_for(lambda: not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in family), 60)


@pytest.mark.slow
def test_lightning_starts_both_processes_and_they_stop_and_go_on_together(tmp_path):
    cell, straight, before, after = tiny(**PAIR), Notebook(), Impatient(stop_at=5), Notebook()
    whole = fit(cell, tmp_path / "straight", straight)
    with pytest.raises(Interrupted, match="saved at step"):
        fit(cell, tmp_path / "halved", before)
    assert fit(cell, tmp_path / "halved", after).metrics == whole.metrics
    assert same(weights(tmp_path / "straight"), weights(tmp_path / "halved"))
    assert before.curves() + after.curves() == straight.curves()


@pytest.mark.slow
def test_two_processes_diverge_together(tmp_path):
    outcome = fit(tiny(devices=2, lr=1e30, schedule="constant", clip=None), tmp_path)
    assert outcome.status == "diverged" and (tmp_path / "diverged.pt").exists()


@pytest.mark.slow
def test_what_went_wrong_in_the_process_is_told_here(tmp_path):
    with pytest.raises(Exception, match="12 sequences do not divide over 2 devices on 1 nodes, in 4 pieces each"):
        fit(tiny(devices=2, accumulate=4), tmp_path)
