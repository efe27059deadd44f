"""Two processes learn what one does, and stop, go on and end together."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
import torch

from hqlt_lab.train.fit import fit
from hqlt_lab.train.interrupt import Interrupted
from tests.train.conftest import Notebook, same, tiny, weights

PAIR = {"devices": 2, "accumulate": 3, "steps": 10}


class Impatient(Notebook):
    """Presses Ctrl-C once some step was told."""

    def __call__(self, step, metrics):
        self.append((step, metrics))
        if step == self.stop_at:
            raise KeyboardInterrupt


def test_two_processes_learn_what_one_does_and_go_on_where_they_stopped(tmp_path):
    alone, together, before, after = Notebook(), Notebook(), Impatient(stop_at=5), Notebook()
    one = fit(tiny(steps=10), tmp_path / "one", alone)
    two = fit(tiny(**PAIR), tmp_path / "two", together)
    torch.testing.assert_close(weights(tmp_path / "one"), weights(tmp_path / "two"), rtol=1e-6, atol=1e-6)
    assert {name: value for name, value in one.metrics.items() if "accuracy" in name} == {
        name: value for name, value in two.metrics.items() if "accuracy" in name
    }
    assert [point[2] for point in alone.curves()] == pytest.approx([point[2] for point in together.curves()], rel=1e-5)

    with pytest.raises(Interrupted, match="saved at step"):
        fit(tiny(**PAIR), tmp_path / "halved", before)
    rest = fit(tiny(**PAIR), tmp_path / "halved", after)
    assert same(weights(tmp_path / "two"), weights(tmp_path / "halved"))
    assert rest.metrics == two.metrics
    assert before.curves() + after.curves() == together.curves()


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
    asking = subprocess.Popen([sys.executable, "-c", script])
    wait_for((tmp_path / "last.ckpt").exists, 120)
    family = psutil.Process(asking.pid).children(recursive=True)
    assert len(family) == 2
    os.kill(asking.pid, signal.SIGKILL)
    asking.wait()
    wait_for(lambda: not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in family), 60)


@pytest.mark.slow
def test_two_processes_diverge_together(tmp_path):
    outcome = fit(tiny(devices=2, lr=1e30, schedule="constant", clip=None), tmp_path)
    assert outcome.status == "diverged" and (tmp_path / "diverged.pt").exists()


@pytest.mark.slow
def test_what_went_wrong_in_the_process_is_told_here(tmp_path):
    with pytest.raises(Exception, match="12 sequences do not divide over 2 devices on 1 nodes, in 4 pieces each"):
        fit(tiny(devices=2, accumulate=4), tmp_path)
