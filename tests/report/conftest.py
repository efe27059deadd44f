"""Factories of small experiments, cell records and run folders."""

import json

import pytest

from hqlt_lab.experiment.arm_title import ArmTitle
from hqlt_lab.experiment.load_experiment import load_experiment
from hqlt_lab.study.ledger.cell_record import CellRecord

BASE = """
question: Which memory counts?
task: {name: parity, train_length: [3, 20], test_length: [20, 20]}
model: {width: 16, heads: 2, layers: 1, mlp_width: 16, timing: {name: synchronous, window: 4}}
train: {steps: 300, batch_size: 8}
"""
ARMS = "arms: {delta: {}, linear: {model.update_rule: linear_attention}, retention: {model.update_rule: retention}}\n"
METRIC = "normalized_accuracy"
VALID = f"valid/{METRIC}"


@pytest.fixture
def make_experiment(tmp_path):
    """Return a function that loads an experiment from three pieces of YAML: base, arms and extra settings."""

    def load(extra="seeds: 2\n", arms=ARMS, base=BASE):
        (tmp_path / "experiment.yaml").write_text(base + arms + extra)
        return load_experiment(tmp_path / "experiment.yaml")

    return load


@pytest.fixture
def make_record():
    """Return a function that builds a cell record; without a test value the cell is waiting.

    The validation value defaults to the test value.
    """

    def make(arm, seed, test=None, valid=None, **fields):
        valid = test if valid is None else valid
        metrics = {} if test is None else {f"valid/{METRIC}": valid, f"test/{METRIC}": test}
        state = "done" if test is not None else "waiting"
        defaults = {"key": f"{arm}-{seed}-{fields.get('point')}", "state": state, "step": 300, "metrics": metrics}
        title = arm if isinstance(arm, ArmTitle) else ArmTitle(arm)
        return CellRecord(arm=title, seed=seed, **(defaults | fields))

    return make


@pytest.fixture
def make_run_folder(tmp_path):
    """Return a function that writes a run folder with the training loss of every tenth step."""

    def write(name, losses):
        folder = tmp_path / name
        folder.mkdir()
        lines = [
            json.dumps({"step": 10 * number, "time": 0.0, "metrics": {"train/loss": loss}})
            for number, loss in enumerate(losses, 1)
        ]
        (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        return folder

    return write


@pytest.fixture
def make_folder(tmp_path):
    """Return a function that writes a run folder with a curve of the selection metric."""

    def write(name, values, every=10):
        folder = tmp_path / name
        folder.mkdir()
        lines = [{"step": every * number, "metrics": {VALID: value}} for number, value in enumerate(values, 1)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return folder

    return write
