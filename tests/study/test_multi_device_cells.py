"""A multi-device cell runs in its own processes and is still one cell of the study."""

import json
import re

import psutil
import pytest

from hqlt_lab.registry import load_components, temporary_components

pytestmark = pytest.mark.slow


def test_cell_on_two_devices_gives_the_same_result_as_on_one(lab):
    two_devices = lab.experiment("seeds: 1", "two", ("trainer.devices=2", "launcher.workers=1"))
    one_device = lab.experiment("seeds: 1", "one")
    lab.run(two_devices)
    lab.run(one_device)
    (distributed,), (single,) = lab.records(two_devices), lab.records(one_device)
    assert distributed.key == single.key
    assert (distributed.state, distributed.attempts) == ("done", 1)
    assert distributed.metrics == pytest.approx(single.metrics, abs=1e-4)
    lines = [json.loads(line) for line in (distributed.folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "train/loss" in line["metrics"]] == [1, 2, 3, 4, 5, 6]
    # a zombie has no command line
    command_lines = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    assert not [command_line for command_line in command_lines if str(distributed.folder) in command_line]


def test_error_in_one_process_is_a_failure_of_the_cell(lab, faulty):
    arms = "arms: {bad: {model.mixer: {name: faulty, how: raise, step: 4}}}\nseeds: 1"
    experiment = lab.experiment(arms, "bad", ("trainer.devices=2", "launcher.retries=0"))
    lab.run(experiment)
    (record,) = lab.records(experiment)
    assert (record.state, record.attempts) == ("failed", 1)
    assert re.fullmatch(
        r"mixer 'faulty' \(.*faulty_mixer\.py, line \d+\) raised RuntimeError: the matrix is not in the mood\.",
        record.why,
    )
    assert "Traceback" in (record.folder / "process.log").read_text()


RANK_ONE_ERROR = """
import os
from hqlt_lab.components.mixers.sum import Sum
from hqlt_lab.registry import register


@register("mixer", "fails_on_rank_one")
class FailsOnRankOne(Sum):
    def forward(self, x, fw, kv):
        return fw + kv if os.environ.get("LOCAL_RANK") != "1" else {}["beta"]
"""


def test_component_error_on_another_rank_is_reported_with_its_line_and_not_retried(lab, tmp_path):
    (tmp_path / "fails_on_rank_one.py").write_text(RANK_ONE_ERROR)
    with temporary_components():
        load_components(tmp_path / "fails_on_rank_one.py")
        experiment = lab.experiment(
            "arms: {a: {model.mixer: fails_on_rank_one}}\nseeds: 1", "fails_on_rank_one", ("trainer.devices=2",)
        )
        lab.run(experiment)
        (record,) = lab.records(experiment)
    assert (record.state, record.attempts) == ("failed", 1)
    assert re.fullmatch(
        r"mixer 'fails_on_rank_one' \(.*fails_on_rank_one\.py, line 10\) raised KeyError: 'beta'\.", record.why
    )


def test_killed_process_of_a_cell_is_retried(lab, faulty, tmp_path):
    mixer = f"{{name: faulty, how: die, step: 5, mark: {tmp_path / 'died'}}}"
    experiment = lab.experiment(f"arms: {{a: {{model.mixer: {mixer}}}}}\nseeds: 1", "dies", ("trainer.devices=2",))
    lab.run(experiment)
    (record,) = lab.records(experiment)
    assert (tmp_path / "died").exists() and (record.state, record.attempts) == ("done", 2)
