"""A cell on several devices is a process of its own, and still one cell of the study."""

import json
import re

import psutil
import pytest

from hqlt_lab.registry import include, temporarily

pytestmark = pytest.mark.slow


def test_a_cell_on_two_devices_gives_what_one_device_gives(lab):
    two = lab.experiment("seeds: 1", "two", ("trainer.devices=2", "launcher.workers=1"))
    one = lab.experiment("seeds: 1", "one")
    lab.run(two)
    lab.run(one)
    (apart,), (here,) = lab.records(two), lab.records(one)
    assert apart.key == here.key
    assert (apart.state, apart.attempts) == ("done", 1)
    assert apart.metrics == pytest.approx(here.metrics, abs=1e-4)
    lines = [json.loads(line) for line in (apart.folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "train/loss" in line["metrics"]] == [1, 2, 3, 4, 5, 6]
    there = [" ".join(one.info["cmdline"] or []) for one in psutil.process_iter(["cmdline"])]  # a zombie has no words
    assert not [words for words in there if str(apart.folder) in words]


def test_a_crash_in_one_of_its_processes_is_a_failure_of_the_cell(lab, faulty):
    arms = "arms: {bad: {model.mixer: {name: faulty, how: raise, step: 4}}}\nseeds: 1"
    experiment = lab.experiment(arms, "bad", ("trainer.devices=2", "launcher.retries=0"))
    lab.run(experiment)
    (record,) = lab.records(experiment)
    assert (record.state, record.attempts) == ("failed", 1)
    assert re.fullmatch(
        r"mixer 'faulty' \(.*faulty\.py, line \d+\) raised RuntimeError: the matrix is not in the mood\.", record.why
    )
    assert "Traceback" in (record.folder / "process.log").read_text()


SLIP = """
import os
from hqlt_lab.components.mixers.sum import Sum
from hqlt_lab.registry import register


@register("mixer", "slips")
class Slips(Sum):
    def forward(self, x, fw, kv):
        return fw + kv if os.environ.get("LOCAL_RANK") != "1" else {}["beta"]
"""


def test_a_slip_in_a_process_that_is_not_the_first_is_told_with_its_line_and_tried_once(lab, tmp_path):
    (tmp_path / "slips.py").write_text(SLIP)
    with temporarily():
        include(tmp_path / "slips.py")
        experiment = lab.experiment("arms: {a: {model.mixer: slips}}\nseeds: 1", "slips", ("trainer.devices=2",))
        lab.run(experiment)
        (record,) = lab.records(experiment)
    assert (record.state, record.attempts) == ("failed", 1)
    assert re.fullmatch(r"mixer 'slips' \(.*slips\.py, line 10\) raised KeyError: 'beta'\.", record.why)


def test_a_process_of_it_that_is_killed_is_no_verdict_on_the_cell(lab, faulty, tmp_path):
    mixer = f"{{name: faulty, how: die, step: 5, mark: {tmp_path / 'died'}}}"
    experiment = lab.experiment(f"arms: {{a: {{model.mixer: {mixer}}}}}\nseeds: 1", "dies", ("trainer.devices=2",))
    lab.run(experiment)
    (record,) = lab.records(experiment)
    assert (tmp_path / "died").exists() and (record.state, record.attempts) == ("done", 2)
