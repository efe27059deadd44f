"""Errors in user components are reported in a sentence with file and line, without a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

from hqlt_lab.cli.terminal.next_command import NextCommand
from hqlt_lab.registry import load_components, temporary_components

HQLT = str(Path(sys.executable).parent / "hqlt")
STUDY = """
question: Does mine count?
task: {name: parity, train_length: [3, 8], test_length: [8, 16], eval_size: 16}
model: {width: 8, heads: 1, layers: 1, timing: {name: synchronous, window: 4}, mixer: sum, positions: none}
train: {steps: 2, batch_size: 4, valid_every: 2, checkpoint_every: 2}
trainer: {accelerator: cpu}
launcher: {workers: 1, threads: 1}
arms: {mine: {model.update_rule: mine}}
seeds: 1
"""
RULE = """
from torch import nn
from hqlt_lab.components.update_rules._base import LinearRule
from hqlt_lab.ops.gates import Gates
from hqlt_lab.registry import register

@register("update_rule", "mine")
class Mine(LinearRule):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def gates(self, x):
        return Gates(write=x[..., : self.heads].sigmoid().mT)
"""
MISTAKES = {  # description: (text in RULE, wrong text, line of the error, message)
    "in its constructor": ("self.heads = heads", "self.heads = haeds", 11, "NameError: name 'haeds' is not defined"),
    "in its gates": (".sigmoid()", ".sigmiod()", 14, "AttributeError: 'Tensor' object has no attribute 'sigmiod'"),
    "in what it inherits": ("def gates", "def gaets", 7, "NotImplementedError: Mine does not implement `gates`"),
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "study.yaml").write_text(STUDY)
    (tmp_path / "mine.py").write_text(RULE)
    return tmp_path


def run_hqlt(folder, *arguments, code=0):
    """Run `hqlt` and return its standard output and standard error."""
    process = subprocess.run([HQLT, *arguments], cwd=folder, capture_output=True, text=True)
    assert process.returncode == code, process.stdout + process.stderr
    return process.stdout + process.stderr


@pytest.mark.parametrize(("old", "new", "line", "message"), MISTAKES.values(), ids=MISTAKES)
def test_exception_of_a_component_is_reported_with_file_and_line(folder, old, new, line, message):
    (folder / "mine.py").write_text(RULE.replace(old, new))
    output = run_hqlt(folder, "--with", "mine.py", "plan", "study.yaml", code=1)
    assert f"update_rule 'mine' (mine.py, line {line}) raised {message}." in output
    assert "Traceback" not in output


def test_exception_in_training_is_not_retried_and_the_logs_command_is_suggested(folder):
    # raises only in training: the gates are computed without gradients when the study is checked
    fail_in_training = "x = x.sigmiod() if x.requires_grad else x; return Gates("
    (folder / "mine.py").write_text(RULE.replace("return Gates(", fail_in_training))
    output = run_hqlt(folder, "--with", "mine.py", "run", "study.yaml", code=3)
    assert "1/1  mine, seed 0: failed. update_rule 'mine' (mine.py, line 14) raised AttributeError" in output
    assert "will be retried" not in output
    (line,) = [line for line in output.splitlines() if " logs " in line]
    assert "Traceback" in run_hqlt(folder, *line.split("#")[0].split()[1:])


def test_evaluating_old_weights_with_a_changed_component_gets_a_warning(folder):
    run_hqlt(folder, "--with", "mine.py", "run", "study.yaml")
    warning = "update_rule mine: changed since these cells were trained, so old weights were evaluated with new code."
    assert warning not in run_hqlt(folder, "--with", "mine.py", "evaluate", "study.yaml")
    (folder / "mine.py").write_text(RULE.replace(".sigmoid()", ".sigmoid().square()"))
    assert warning in run_hqlt(folder, "--with", "mine.py", "evaluate", "study.yaml")


def test_arm_that_diverges_in_every_seed_is_a_partial_failure(folder):
    nan_in_training = "x = x * float('nan') if x.requires_grad else x; return Gates("
    (folder / "mine.py").write_text(RULE.replace("return Gates(", nan_in_training))
    assert "mine, seed 0: diverged." in run_hqlt(folder, "--with", "mine.py", "run", "study.yaml", code=3)


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (".sigmiod()", "update_rule 'mine' (mine.py, line 14) raised AttributeError: 'Tensor' object has no attribute"),
        (".mul(float('nan'))", "'mine': write is NaN for some tokens."),
    ],
)
def test_rule_that_raises_or_returns_nan_is_rejected_with_the_line_of_the_file(folder, command, mistake, message):
    (folder / "mine.py").write_text(RULE.replace(".sigmoid()", mistake))
    output = run_hqlt(folder, "--with", "mine.py", command, "study.yaml", code=1)
    assert f"study.yaml, line 8: model.update_rule: {message}" in output and not (folder / "runs").exists()


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize("gate", [".sigmoid()", ".sigmoid().mT[..., None].expand(-1, -1, -1, 3)"])
def test_gates_of_the_wrong_shape_are_rejected_before_training(folder, command, gate):
    (folder / "mine.py").write_text(RULE.replace(".sigmoid().mT", gate))
    output = run_hqlt(folder, "--with", "mine.py", command, "study.yaml", code=1)
    assert "study.yaml, line 8: model.update_rule: " in output
    assert not (folder / "runs").exists()


def test_gates_with_fewer_channels_than_the_features_of_a_key_are_rejected_with_the_line_of_the_file(folder):
    """A rule that does not declare `has_key_channels` is not refused when its feature map widens the keys."""
    gate = "log_keep=-x.unflatten(-1, (self.heads, -1)).transpose(1, 2).square()"
    (folder / "mine.py").write_text(RULE.replace("write=x[..., : self.heads].sigmoid().mT", gate))
    (folder / "study.yaml").write_text(STUDY.replace("mixer: sum", "mixer: sum, feature_map: dpfp"))
    output = run_hqlt(folder, "--with", "mine.py", "plan", "study.yaml", code=1)
    message = "'mine': log_keep has 8 channels, but the keys have 16. A rule with gates or lookup keys per key channel"
    assert f"study.yaml, line 8: model.update_rule: {message}" in output


@pytest.mark.parametrize("arguments", [("plan", "study.yaml"), ("check", "update_rule", "mine")])
def test_component_of_the_wrong_class_is_an_error_that_names_the_base_classes(folder, arguments):
    (folder / "mine.py").write_text(RULE.replace("(LinearRule)", "(nn.Module)"))
    output = run_hqlt(folder, "--with", "mine.py", *arguments, code=1)
    assert "update_rule 'mine' is the class Mine, which has no feature_map or needs_unit_keys." in output
    assert "Subclass LinearRule or StepRule or UpdateRule: from hqlt_lab.components.update_rules._base import" in output


def test_file_without_a_component_gets_a_warning(folder):
    (folder / "empty.py").write_text("from hqlt_lab.components.mixers.sum import Sum\n")
    output = run_hqlt(
        folder, "--with", "empty.py", "--with", "mine.py", "--with", "mine.py", "list", "update_rule", "mine"
    )
    assert "--with empty.py: no component is registered in it. Decorate the component with @register(" in output
    assert "--with mine.py" not in output


def test_with_without_a_file_is_a_usage_error(folder):
    output = run_hqlt(folder, "list", "--with", code=2)
    assert "'--with' requires an argument" in output and "No such option" not in output


def test_status_names_cells_trained_with_other_code_and_the_command_that_retrains_them(folder):
    run_hqlt(folder, "--with", "mine.py", "run", "study.yaml")
    assert "different version" not in run_hqlt(folder, "--with", "mine.py", "status", "study.yaml")
    (folder / "mine.py").write_text(RULE.replace(".sigmoid()", ".tanh()"))
    output = run_hqlt(folder, "--with", "mine.py", "status", "study.yaml")
    assert "1 cell was trained with a different version of the code (update_rule mine). Train again with\n" in output
    assert "    hqlt --with mine.py run study.yaml --again\n" in output
    # with --only, status does not know the other cells, so the command names the arm
    output = run_hqlt(folder, "--with", "mine.py", "status", "study.yaml", "--only", "arm=mine")
    assert "    hqlt --with mine.py run study.yaml --again --only arm=mine\n" in output


def test_next_command_omits_components_that_pyproject_lists(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("listed", "typed"):
        imports = "from hqlt_lab.components.mixers.sum import Sum\nfrom hqlt_lab.registry import register\n"
        (tmp_path / f"{name}.py").write_text(f'{imports}\n@register("mixer", "{name}")\nclass Mine(Sum): ...\n')
    (tmp_path / "pyproject.toml").write_text('[tool.hqlt_lab]\nwith = ["listed.py"]\n')
    with temporary_components():
        load_components(tmp_path / "listed.py")
        load_components(tmp_path / "typed.py")
        command = NextCommand(Path("q.yaml"), [], Path("runs")).format_command("run")
    assert command == "hqlt --with typed.py run q.yaml"
