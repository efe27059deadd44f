"""What made a result: code, libraries, machine, and the forms that its layers take."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import hqlt_lab.track.provenance as module
from hqlt_lab.experiment.experiment import load
from hqlt_lab.experiment.plan import plan
from hqlt_lab.track.card import cell_card, study_card
from hqlt_lab.track.machine import repository
from hqlt_lab.track.provenance import code_of, provenance

EXPERIMENT = """
question: Which memory?
task: {name: parity, train_length: [3, 40]}
model: {width: 32, heads: 2, layers: 2, timing: {name: synchronous, window: 8}, positions: none}
arms: {hybrid: {}, nonlinear: {model.update_rule: bounded_delta}, softmax: {model.mixer: kv_only}}
cross: {model.mlp: [swiglu, gelu]}
tune: {train.lr: [1e-3, 3e-3]}
seeds: 1
"""


@pytest.fixture
def experiment(tmp_path):
    file = tmp_path / "which.yaml"
    file.write_text(EXPERIMENT)
    return load(file)


def cell(experiment, arm=0, **model):
    made = experiment.cell(experiment.arms[arm], {}, 0)
    return type(made)(**(vars(made) | {"model": dict(made.model) | model}))


def git(folder, *words):
    subprocess.run(
        ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True, capture_output=True
    )


def test_cards_are_made_of_what_the_coordinator_has(experiment, tmp_path):
    study = study_card(experiment, tmp_path, EXPERIMENT, {})
    assert study.axes == ["mlp", "lr"] and study.arms[0] == "hybrid, mlp=swiglu"
    key, first = plan(experiment)[0]
    told = cell_card(key, first, tmp_path / key, "running")
    assert told.title == "hybrid, mlp=swiglu, lr=0.001, seed=0"
    assert told.axes == {"mlp": "swiglu", "lr": "0.001"}


def test_provenance_is_plain_words_and_numbers():
    told = provenance()
    assert json.loads(json.dumps(told)) == told
    assert told["versions"]["python"].startswith("3.") and told["machine"]["cores"] >= 1
    assert told["command"] == shlex.join(sys.argv)


def test_a_repository_tells_its_commit_and_its_changes(tmp_path):
    git(tmp_path, "init")
    (tmp_path / "a.txt").write_text("old\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "one")
    clean = repository(tmp_path)
    assert len(clean["commit"]) == 40 and not clean["dirty"] and clean["diff"] == ""
    (tmp_path / "a.txt").write_text("new\n")
    dirty = repository(tmp_path)
    assert dirty["dirty"] and "+new" in dirty["diff"] and dirty["commit"] == clean["commit"]


def test_without_a_repository_or_without_git_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert repository(tmp_path) is None
    monkeypatch.setenv("PATH", "")
    assert repository(tmp_path) is None


def test_a_cell_names_the_code_it_uses_and_no_other(experiment):
    hybrid, softmax = code_of(cell(experiment)), code_of(cell(experiment, arm=4))
    assert set(hybrid) == {
        "lab", "task parity", "update_rule delta", "timing synchronous", "mixer vector", "positions none",
        "feature_map silu_l2",
    }  # fmt: skip
    assert "update_rule delta" not in softmax and "mixer kv_only" in softmax
    assert all(len(value) == 12 for value in hybrid.values())


def test_parts_per_layer_are_all_named(experiment):
    rules = [{"name": "delta", "max_beta": 1.0}, {"name": "retention"}]
    told = code_of(cell(experiment, update_rule=rules))
    assert {"update_rule delta", "update_rule retention"} <= set(told)


def test_a_changed_file_changes_the_hash(tmp_path):
    file = tmp_path / "part.py"
    file.write_text("a = 1\n")
    before = module.short_hash([file])
    file.write_text("a = 2\n")
    assert module.short_hash([file]) != before


def test_the_room_loads_neither_mlflow_nor_torch():
    names = [file.stem for file in Path(module.__file__).parent.glob("[a-z]*.py")]
    script = f"import sys; from hqlt_lab.track import {', '.join(names)}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "lightning", "mlflow", "optuna", "sqlalchemy"} & set(loaded)
