"""A language model that is killed with SIGKILL and restarted ends with the same metrics, each step logged once."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.tasks.small_corpus import prepare_small_corpus

pytestmark = pytest.mark.slow
STEPS = 40
EXPERIMENT_YAML = f"""
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


def start_study(folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(COMMAND, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish_study(folder: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Run the study to its end, and return its metrics and losses."""
    process = start_study(folder)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    outcome = json.loads(next(folder.glob("runs/studies/text/cells/*/outcome.json")).read_text())
    return outcome["metrics"], losses_by_step(folder)


def metric_lines(folder: Path) -> list[str]:
    return [
        line
        for file in folder.glob("runs/studies/text/cells/*/metrics.jsonl")
        for line in file.read_text().splitlines()
    ]


def losses_by_step(folder: Path) -> dict[str, float]:
    """Return the training loss by step, after checking that each step is logged once."""
    points = [json.loads(line) for line in metric_lines(folder)]
    losses = [(point["step"], point["metrics"]["train/loss"]) for point in points if "train/loss" in point["metrics"]]
    assert len(losses) == len(dict(losses)) == STEPS
    return dict(losses)


def write_study(folder: Path) -> Path:
    prepare_small_corpus(folder / "data")
    (folder / "text.yaml").write_text(EXPERIMENT_YAML)
    return folder


def test_a_language_model_that_was_killed_ends_like_an_uninterrupted_one(tmp_path, tmp_path_factory):
    killed, uninterrupted = write_study(tmp_path), write_study(tmp_path_factory.mktemp("uninterrupted"))
    for num_lines in (5, 17, 31):  # before the first checkpoint, and between two
        process, deadline = start_study(killed), time.monotonic() + 120
        while len(metric_lines(killed)) < num_lines and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        has_ended = process.poll() is not None
        process.kill()
        assert not has_ended, process.communicate()[0]
        process.communicate()
    assert finish_study(killed) == finish_study(uninterrupted)
