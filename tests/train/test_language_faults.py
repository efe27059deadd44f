"""Kill -9 while a language model learns, type the same command again: the same model, the same curve, nothing twice."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.tasks.texts import prepared

pytestmark = pytest.mark.slow
STEPS = 40
FILE = f"""
question: Does it go on where it was?
task: {{name: language, data: data, length: 64, documents: reset, eval_size: 4}}
model: {{width: 32, heads: 2, layers: 2, mlp_width: 32, timing: {{name: delayed_stream, window: 8}}}}
train: {{steps: {STEPS}, batch_size: 8, lr: 1e-2, valid_every: 10, checkpoint_every: 7, log_every: 1}}
trainer: {{accelerator: cpu}}
launcher: {{workers: 1, threads: 1}}
seeds: 1
measure: {{select: valid/loss, report: [test/bits_per_byte], direction: minimize}}
"""
COMMAND = [str(Path(sys.executable).parent / "hqlt"), "run", "text.yaml"]


def start(folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(COMMAND, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(folder: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Type it, wait, and read the result and the curve."""
    process = start(folder)
    told, _ = process.communicate(timeout=300)
    assert process.returncode == 0, told
    outcome = json.loads(next(folder.glob("runs/studies/text/cells/*/outcome.json")).read_text())
    return outcome["metrics"], losses(folder)


def lines(folder: Path) -> list[str]:
    return [
        line
        for file in folder.glob("runs/studies/text/cells/*/metrics.jsonl")
        for line in file.read_text().splitlines()
    ]


def losses(folder: Path) -> dict[str, float]:
    """Step -> training loss, each step once."""
    points = [json.loads(line) for line in lines(folder)]
    found = [(point["step"], point["metrics"]["train/loss"]) for point in points if "train/loss" in point["metrics"]]
    assert len(found) == len(dict(found)) == STEPS
    return dict(found)


@pytest.fixture
def place(tmp_path):
    prepared(tmp_path / "data")
    (tmp_path / "text.yaml").write_text(FILE)
    return tmp_path


def test_a_language_model_that_was_killed_ends_as_if_it_had_not_been(place, tmp_path_factory):
    other = tmp_path_factory.mktemp("undisturbed")
    prepared(other / "data")
    (other / "text.yaml").write_text(FILE)
    for after in (5, 17, 31):  # before the first checkpoint, and between two
        process, until = start(place), time.monotonic() + 120
        while len(lines(place)) < after and process.poll() is None and time.monotonic() < until:
            time.sleep(0.005)
        over = process.poll() is not None
        process.kill()
        assert not over, process.communicate()[0]
        process.communicate()
    assert finish(place) == finish(other)
