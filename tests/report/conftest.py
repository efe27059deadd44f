"""Small experiments, and cells that came of them."""

import json

import pytest

from hqlt_lab.experiment.experiment import load
from hqlt_lab.study.record import Record

BASE = """
question: Which memory counts?
task: {name: parity, train_length: [3, 20], test_length: [3, 20]}
model: {width: 16, heads: 2, layers: 1, mlp_width: 16, timing: {name: synchronous, window: 4}}
train: {steps: 300, batch_size: 8}
"""
ARMS = "arms: {delta: {}, linear: {model.update_rule: linear_attention}, retention: {model.update_rule: retention}}\n"
METRIC = "normalised_accuracy"


@pytest.fixture
def asked(tmp_path):
    """An experiment: the base and what is written here."""

    def load_with(more="seeds: 2\n", arms=ARMS, base=BASE):
        (tmp_path / "asked.yaml").write_text(base + arms + more)
        return load(tmp_path / "asked.yaml")

    return load_with


@pytest.fixture
def cell():
    """A finished cell with one test value; its validation value is the same unless it is told."""

    def make(arm, seed, test=None, valid=None, **told):
        valid = test if valid is None else valid
        metrics = {} if test is None else {f"valid/{METRIC}": valid, f"test/{METRIC}": test}
        state = "done" if test is not None else "waiting"
        known = {"key": f"{arm}-{seed}-{told.get('point')}", "state": state, "step": 300, "metrics": metrics}
        return Record(arm=arm, seed=seed, **(known | told))

    return make


@pytest.fixture
def logged(tmp_path):
    """A folder with the loss of every tenth step."""

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
