"""What is told of parts of one's own that go wrong: a sentence with their file and line, not a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

from hqlt_lab.cli.typed import Typed
from hqlt_lab.registry import include, temporarily

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
from hqlt_lab.ops.steps import Gates
from hqlt_lab.registry import register

@register("update_rule", "mine")
class Mine(LinearRule):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def gates(self, x):
        return Gates(write=x[..., : self.heads].sigmoid().mT)
"""
SLIPS = {
    "in its constructor": ("self.heads = heads", "self.heads = haeds", 11, "NameError: name 'haeds' is not defined"),
    "in its gates": (".sigmoid()", ".sigmiod()", 14, "AttributeError: 'Tensor' object has no attribute 'sigmiod'"),
    "in what it inherits": ("def gates", "def gaets", 7, "NotImplementedError: Mine gives no gates"),
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "study.yaml").write_text(STUDY)
    (tmp_path / "mine.py").write_text(RULE)
    return tmp_path


def hqlt(folder, *words, code=0):
    done = subprocess.run([HQLT, *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("place", SLIPS)
def test_what_a_part_raises_is_told_with_its_file_and_line(folder, place):
    old, new, line, said = SLIPS[place]
    (folder / "mine.py").write_text(RULE.replace(old, new))
    told = hqlt(folder, "--with", "mine.py", "plan", "study.yaml", code=1)
    assert f"update_rule 'mine' (mine.py, line {line}) raised {said}." in told
    assert "Traceback" not in told


def test_a_slip_in_a_part_is_tried_once_and_its_log_is_pointed_at(folder):
    learning = "x = x.sigmiod() if x.requires_grad else x; return Gates("  # which it is not when it is looked at before
    (folder / "mine.py").write_text(RULE.replace("return Gates(", learning))
    told = hqlt(folder, "--with", "mine.py", "run", "study.yaml", code=3)
    assert "1/1  mine, seed 0: failed. update_rule 'mine' (mine.py, line 14) raised AttributeError" in told
    assert "will be tried again" not in told
    (line,) = [line for line in told.splitlines() if " logs " in line]
    assert "Traceback" in hqlt(folder, *line.split("#")[0].split()[1:])


def test_weights_that_are_asked_in_another_part_than_they_learned_in_are_told(folder):
    hqlt(folder, "--with", "mine.py", "run", "study.yaml")
    says = "update_rule mine: changed since these cells were trained, and old weights were asked in new code."
    assert says not in hqlt(folder, "--with", "mine.py", "evaluate", "study.yaml")
    (folder / "mine.py").write_text(RULE.replace(".sigmoid()", ".sigmoid().square()"))
    assert says in hqlt(folder, "--with", "mine.py", "evaluate", "study.yaml")


def test_an_arm_that_diverges_in_every_seed_is_not_all_well(folder):
    lost = "x = x * float('nan') if x.requires_grad else x; return Gates("
    (folder / "mine.py").write_text(RULE.replace("return Gates(", lost))
    assert "mine, seed 0: diverged." in hqlt(folder, "--with", "mine.py", "run", "study.yaml", code=3)


@pytest.mark.parametrize("verb", ["plan", "run"])
@pytest.mark.parametrize(
    ("slip", "says"),
    [
        (".sigmiod()", "update_rule 'mine' (mine.py, line 14) raised AttributeError: 'Tensor' object has no attribute"),
        (".mul(float('nan'))", "of 'mine', write is no number (nan) for some tokens."),
    ],
)
def test_a_rule_that_raises_or_gives_no_numbers_is_refused_with_the_line_that_names_it(folder, verb, slip, says):
    (folder / "mine.py").write_text(RULE.replace(".sigmoid()", slip))
    told = hqlt(folder, "--with", "mine.py", verb, "study.yaml", code=1)
    assert f"study.yaml, line 8: model.update_rule: {says}" in told and not (folder / "runs").exists()


@pytest.mark.parametrize("verb", ["plan", "run"])
def test_gates_of_another_shape_are_refused_before_anything_trains(folder, verb):
    (folder / "mine.py").write_text(RULE.replace(".sigmoid().mT", ".sigmoid()"))
    told = hqlt(folder, "--with", "mine.py", verb, "study.yaml", code=1)
    assert "of 'mine', write is [3, 2, 1] for 3 rows, 1 heads, 2 tokens of 1 writes, and [B, H, T * writes]" in told
    assert not (folder / "runs").exists()


@pytest.mark.parametrize("words", [("plan", "study.yaml"), ("check", "update_rule", "mine")])
def test_a_part_of_the_wrong_class_is_told_which_one_to_subclass(folder, words):
    (folder / "mine.py").write_text(RULE.replace("(LinearRule)", "(nn.Module)"))
    told = hqlt(folder, "--with", "mine.py", *words, code=1)
    assert (
        "update_rule 'mine' is the class Mine, which has no feature_map or needs_unit_keys. Subclass LinearRule" in told
    )
    assert "Subclass LinearRule or StepRule or UpdateRule: from hqlt_lab.components.update_rules._base import" in told


def test_a_file_without_a_part_is_told_and_a_file_with_one_is_not(folder):
    (folder / "empty.py").write_text("from hqlt_lab.components.mixers.sum import Sum\n")
    told = hqlt(folder, "--with", "empty.py", "--with", "mine.py", "--with", "mine.py", "list", "update_rule", "mine")
    assert "--with empty.py: no part is registered in it. A part stands below @register(" in told
    assert "--with mine.py" not in told


def test_with_without_a_file_says_what_it_lacks(folder):
    told = hqlt(folder, "list", "--with", code=2)
    assert "'--with' requires an argument" in told and "No such option" not in told


def test_status_says_which_cells_other_code_has_made_and_what_trains_them_anew(folder):
    hqlt(folder, "--with", "mine.py", "run", "study.yaml")
    assert "other code" not in hqlt(folder, "--with", "mine.py", "status", "study.yaml")
    (folder / "mine.py").write_text(RULE.replace(".sigmoid()", ".tanh()"))
    told = hqlt(folder, "--with", "mine.py", "status", "study.yaml")
    assert "1 cell was made by other code than today's (update_rule mine). Train anew with\n" in told
    assert "    hqlt --with mine.py run study.yaml --again\n" in told
    some = hqlt(folder, "--with", "mine.py", "status", "study.yaml", "--only", "arm=mine")  # there may be others
    assert "    hqlt --with mine.py run study.yaml --again --only arm=mine\n" in some


def test_parts_that_the_folder_lists_are_not_named_in_the_next_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("listed", "typed"):
        text = "from hqlt_lab.components.mixers.sum import Sum\nfrom hqlt_lab.registry import register\n"
        (tmp_path / f"{name}.py").write_text(f'{text}\n@register("mixer", "{name}")\nclass Mine(Sum): ...\n')
    (tmp_path / "pyproject.toml").write_text('[tool.hqlt_lab]\nwith = ["listed.py"]\n')
    with temporarily():
        include(tmp_path / "listed.py")
        include(tmp_path / "typed.py")
        told = Typed(Path("q.yaml"), [], Path("runs")).with_verb("run")
    assert told == "hqlt --with typed.py run q.yaml"
