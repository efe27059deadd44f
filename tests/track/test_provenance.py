"""Provenance of a result: code, libraries and machine."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hqlt_lab.experiment.expand_cells import expand_plan
from hqlt_lab.experiment.load_experiment import load_experiment
from hqlt_lab.track import provenance
from hqlt_lab.track.provenance import cell_code_hashes, collect_provenance, git_state, hash_files
from hqlt_lab.track.study_description import build_cell_info, build_study_info

EXPERIMENT = """
question: Which memory?
task: {name: parity, train_length: [3, 40]}
model: {width: 32, heads: 2, layers: 2, timing: {name: synchronous, window: 8}, positions: none}
arms: {hybrid: {}, nonlinear: {model.update_rule: tanh_delta}, softmax: {model.mixer: kv_only}}
cross: {model.mlp: [swiglu, gelu]}
tune: {train.lr: [1e-3, 3e-3]}
seeds: 1
"""


@pytest.fixture
def experiment(tmp_path):
    file = tmp_path / "which.yaml"
    file.write_text(EXPERIMENT)
    return load_experiment(file)


def make_model_cell(experiment, arm=0, **model):
    cell = experiment.make_cell(experiment.arms[arm], {}, 0)
    return type(cell)(**(vars(cell) | {"model": dict(cell.model) | model}))


def run_git(folder, *arguments):
    subprocess.run(
        ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *arguments], check=True, capture_output=True
    )


def test_study_and_cell_infos_are_built_from_the_experiment(experiment, tmp_path):
    study = build_study_info(experiment, tmp_path, EXPERIMENT, {})
    assert study.axes == ["mlp", "lr"]
    key, first = expand_plan(experiment)[0]
    info = build_cell_info(key, first, tmp_path / key, "running")
    assert info.title == "hybrid, mlp=swiglu, lr=0.001, seed=0"
    assert info.axes == {"mlp": "swiglu", "lr": "0.001"}


def test_provenance_is_json():
    collected = collect_provenance()
    assert json.loads(json.dumps(collected)) == collected
    assert collected["versions"]["python"].startswith("3.") and collected["machine"]["cores"] >= 1
    assert collected["command"] == shlex.join(sys.argv)


def test_the_git_state_has_the_commit_and_uncommitted_changes(tmp_path):
    run_git(tmp_path, "init")
    (tmp_path / "a.txt").write_text("old\n")
    run_git(tmp_path, "add", ".")
    run_git(tmp_path, "commit", "-m", "one")
    clean = git_state(tmp_path)
    assert len(clean["commit"]) == 40 and not clean["dirty"] and clean["diff"] == ""
    (tmp_path / "a.txt").write_text("new\n")
    dirty = git_state(tmp_path)
    assert dirty["dirty"] and "+new" in dirty["diff"] and dirty["commit"] == clean["commit"]


def test_without_a_repository_or_git_the_state_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_state(tmp_path) is None
    monkeypatch.setenv("PATH", "")
    assert git_state(tmp_path) is None


def test_a_cell_has_the_hashes_of_the_components_it_uses_and_no_other(experiment):
    hybrid, softmax = (
        cell_code_hashes(make_model_cell(experiment)),
        cell_code_hashes(make_model_cell(experiment, arm=4)),
    )
    assert set(hybrid) == {
        "lab", "task parity", "update_rule delta", "timing synchronous", "mixer vector", "positions none",
        "feature_map silu_l2", "attention softmax",
    }  # fmt: skip
    assert "update_rule delta" not in softmax and "mixer kv_only" in softmax
    assert all(len(value) == 12 for value in hybrid.values())


def test_components_of_all_layers_are_hashed(experiment):
    rules = [{"name": "delta", "max_beta": 1.0}, {"name": "retention"}]
    hashes = cell_code_hashes(make_model_cell(experiment, update_rule=rules))
    assert {"update_rule delta", "update_rule retention"} <= set(hashes)


def test_a_changed_file_changes_the_hash(tmp_path):
    file = tmp_path / "component.py"
    file.write_text("a = 1\n")
    before = hash_files([file])
    file.write_text("a = 2\n")
    assert hash_files([file]) != before


def test_the_track_package_loads_neither_mlflow_nor_torch():
    root = Path(provenance.__file__).parent
    files = [file.relative_to(root).with_suffix("") for file in root.rglob("[a-z]*.py")]
    names = [".".join(("hqlt_lab.track", *file.parts)) for file in files]
    assert "hqlt_lab.track.ui.server" in names
    script = f"import sys, {', '.join(names)}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "lightning", "mlflow", "optuna", "sqlalchemy"} & set(loaded)
