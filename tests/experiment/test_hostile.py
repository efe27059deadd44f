"""Experiment files from somebody who means ill: each ends in a sentence, soon, and nothing of it is run."""

import os
import time
from pathlib import Path

import pytest

from hqlt_lab.errors import HqltError
from hqlt_lab.experiment.experiment import load
from hqlt_lab.experiment.references import resolved
from hqlt_lab.experiment.source import LARGEST
from hqlt_lab.registry import build, include, temporarily

GOOD = """question: Does it read?
task: {name: parity, train_length: [3, 8], test_length: [8, 16]}
model: {width: 16, heads: 2, layers: 1}
train: {steps: 2, batch_size: 4}
seeds: 1
"""
SOON = 5.0  # seconds of processor
BOMB = "b0: &b0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"b{n}: &b{n} [{', '.join([f'*b{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
MERGES = "b0: &b0 {x0: 1}\n" + "".join(
    f"b{n}: &b{n} {{<<: [{', '.join([f'*b{n - 1}'] * 9)}], x{n}: 1}}\n" for n in range(1, 12)
)
LAUGHS = "layers: 1, k0: haha, " + ", ".join(f"k{n}: '{f'${{model.k{n - 1}}}' * 10}'" for n in range(1, 12))
AXES = ("train.lr", "train.clip", "train.warmup", "model.width", "model.heads", "model.layers", "task.eval_size")
GRID = "".join(f"  {path}: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n" for path in AXES)

# text, or what is put in the place of what; and what is said
FILES = {
    "an object": (GOOD + "arms: {a: !!python/object/apply:os.system ['touch PWNED']}\n", "has the tag"),
    "a name of Python": (GOOD + "quoted: !!python/name:os.system\n", "has the tag"),
    "a tag of one's own": (GOOD + "quoted: !mine {}\n", "has the tag '!mine' in line 6"),
    "a tag with a wrong value": (GOOD.replace("seeds: 1", "seeds: !!int many"), "has the tag"),
    "a billion laughs": (GOOD + BOMB, "YAML"),
    "a billion merges": (GOOD + MERGES, "YAML"),
    "an anchor inside itself": (GOOD + "quoted: &a {b: *a}\n", "YAML"),
    "a key twice": (GOOD + "seeds: 2\n", "line 6: 'seeds' stands there twice."),
    "two documents": (GOOD + "---\n" + GOOD, "line 6: --- begins a second experiment."),
    "no UTF-8": (GOOD.encode().replace(b"Does", b"D\xe9s"), "YAML"),
    "deep lists": (GOOD + f"quoted: {'[' * 20_000}{']' * 20_000}\n", "deeper than 30 levels"),
    "deep mappings": (GOOD + f"quoted: {'{a: ' * 20_000}1{'}' * 20_000}\n", "deeper than 30 levels"),
    "a deep path": (GOOD + f"arms: {{a: {{model{'.x' * 400}: 1}}}}\n", "goes deeper than any setting"),
    "many values": (GOOD + f"quoted: [{'1, ' * 20_000}]\n", "more than 5,000 values"),
    "a long value": (GOOD.replace("Does it read?", "?" * 5000), "has a value of 5,000 letters"),
    "a long number": (GOOD.replace("seeds: 1", "seeds: " + "9" * 6000), "has a value of 6,000 letters"),
    "a large file": (GOOD + "#" * (LARGEST + 1), "is larger than 1,000,000 bytes"),
    "an escape in the question": (GOOD.replace("Does it read?", '"\\e[2J\\e]0;mine\\a"'), "control character '\\x1b'"),
    "an escape in an arm": (GOOD + 'arms: {"\\e[31mred": {}}\n', "control character '\\x1b'"),
    "letters that turn a line around": (GOOD.replace("Does it read?", '"a\\u202Eb"'), "control character '\\u202e'"),
    "nothing, in letters": (GOOD.replace("Does it read?", '"a\\0b"'), "control character '\\x00'"),
    "the environment": (GOOD.replace("Does it read?", "${oc.env:SECRET}"), "or taken from the environment"),
    "the environment in a key": (GOOD + "arms: {'${oc.env:SECRET}': {}}\n", "or taken from the environment"),
    "the environment, decoded": (GOOD.replace("16,", "'${oc.decode:${oc.env:SECRET}}',"), "only the whole path"),
    "a resolver": (GOOD.replace("16,", "'${oc.create:{a: 1}}',"), "only the whole path"),
    "a deep reference": (GOOD.replace("16,", f"'{'${' * 900}a{'}' * 900}',"), "only the whole path"),
    "a reference to itself": (GOOD.replace("16,", "'${model.width}',"), "refers to itself"),
    "references that refer on and on": (
        GOOD + "agent: {" + ", ".join(f"a{n}: '${{agent.a{n + 1}}}'" for n in range(600)) + ", a600: 1}\n",
        "refers on, more than 20 times",
    ),
    "references in a circle": (GOOD.replace("16,", "'${model.heads}',").replace("2,", "'${model.width}',"), "itself"),
    "a reference to what holds it": (GOOD.replace("16,", "'${model}',"), "refers to itself"),
    "a billion laughs by reference": (GOOD.replace("layers: 1", LAUGHS), "more than 5,000 values"),
    "many seeds": (GOOD.replace("seeds: 1", "seeds: 1000000000"), "1,000,000,000 cells are asked for"),
    "many seeds to tune on": (GOOD + "tune_seeds: 1000000000\n", "1,000,000,000 cells are asked for"),
    "a seed without end": (GOOD.replace("seeds: 1", "seeds: [1000000000000000000000]"), "seeds: "),
    "a cross without end": (f"{GOOD}cross:\n{GRID}", "10,000,000 compositions are asked for"),
    "a grid without end": (f"{GOOD}tune:\n{GRID}", "10,000,000 compositions are asked for"),
    "a search without end": (GOOD + "tune: {train.lr: {low: 1, high: 2, trials: 10000000}}\n", "cells are asked for"),
    "layers without end": (GOOD.replace("layers: 1", "layers: 1000000000"), "layers: at most 1,000 are possible"),
    "a width without end": (GOOD.replace("16,", "99999999999,"), "width: at most 1,048,576 are possible"),
    "a width of more than 64 bits": (GOOD.replace("16,", f"{'9' * 30},"), "width: int is needed"),
    "no number": (GOOD.replace("steps: 2", "steps: 2, lr: .nan"), "lr: float is needed, got nan"),
    "more than any number": (GOOD.replace("steps: 2", "steps: 2, lr: .inf"), "lr: float is needed, got inf"),
    "an import path": (GOOD.replace("parity", "os.system"), "no task is called 'os.system'"),
    "a path": (GOOD.replace("parity", "../../evil"), "no task is called '../../evil'"),
    "a hidden module": (GOOD.replace("parity", "_base"), "no task is called '_base'"),
    "a target": (GOOD.replace("parity,", "parity, _target_: os.system,"), "has no option '_target_'"),
    "a plugin": (GOOD + "trainer: {plugins: os.system}\n", "trainer.plugins: there is no such setting"),
    "extends nothing, in letters": ('extends: "a\\0b"\n', "control character"),
    "extends a long name": (f"extends: {'a' * 3000}.yaml\n", "cannot be read (File name too long)"),
    "extends what is no experiment": ("extends: /etc/passwd\n", "takes the name of one YAML file"),
    "extends itself": ("extends: question.yaml\n", "extends itself"),
}


@pytest.mark.parametrize(("text", "says"), FILES.values(), ids=FILES)
def test_a_hostile_file_ends_in_a_sentence(text, says, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "hunter22hunter")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "question.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    began = time.process_time()
    with pytest.raises(HqltError) as told:
        load(file)
    assert says in str(told.value) and "hunter22" not in str(told.value) and "\x1b" not in str(told.value)
    assert time.process_time() - began < SOON
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize("make", [os.mkfifo, lambda file: file.symlink_to("/dev/zero")], ids=["pipe", "device"])
def test_what_never_ends_is_no_experiment(make, tmp_path):
    make(tmp_path / "endless.yaml")
    (tmp_path / "question.yaml").write_text("extends: endless.yaml\n")
    for name in ("endless.yaml", "question.yaml"):
        with pytest.raises(HqltError, match=r"endless\.yaml: is no plain file"):
            load(tmp_path / name)


def test_files_that_extend_each_other_come_to_an_end(tmp_path):
    for number in range(50):
        (tmp_path / f"{number}.yaml").write_text(f"extends: {number + 1}.yaml\n")
    (tmp_path / "50.yaml").write_text(GOOD)
    with pytest.raises(HqltError, match="more than 20 times"):
        load(tmp_path / "0.yaml")


@pytest.mark.parametrize("name", ["..yaml", "...yaml", ".hidden.yaml", "a\x1b[2J.yaml", f"{'a' * 160}.yaml"])
def test_a_study_is_never_called_by_the_name_of_another_folder(name, tmp_path):
    """runs/studies/.. would be the folder of all runs."""
    (tmp_path / name).write_text(GOOD)
    with pytest.raises(HqltError, match="a study is called like its file"):
        load(tmp_path / name)


def test_workers_have_an_end():
    with pytest.raises(HqltError, match="workers: at most 1,024 are possible, got 1,000,000"):
        build("launcher", {"name": "local", "workers": 1_000_000})


def test_an_override_is_looked_at_as_the_file_is(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "hunter22hunter")
    (tmp_path / "question.yaml").write_text(GOOD)
    for value in ("${oc.env:SECRET}", "!!python/name:os.system", "[" * 5000, "\x1b[2J"):
        with pytest.raises(HqltError, match=r"--set question=.*cannot be read as a value") as told:
            load(tmp_path / "question.yaml", [f"question={value}"])
        assert "hunter22" not in str(told.value)


def test_references_keep_types_and_stand_inside_of_words():
    told = {"train": {"steps": 10, "lr_horizon": "${train.steps}"}, "task": {"data": "data/${task.name}", "name": "x"}}
    assert resolved(told) == {"train": {"steps": 10, "lr_horizon": 10}, "task": {"data": "data/x", "name": "x"}}


def test_a_task_file_runs_code_and_so_comes_in_by_the_command_line_alone(tmp_path, monkeypatch):
    """lm-eval calls the functions that a task file names, and its templates can reach anything in Python."""
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("task: mine\ndoc_to_text: !function evil.touch\n")
    text = "task: {name: language, data: nowhere, vocabulary_size: 256}"
    sections = [text if line.startswith("task:") else line for line in GOOD.splitlines()]
    measure = "measure: {select: valid/loss, report: [test/perplexity], direction: minimize}"
    Path("question.yaml").write_text("\n".join([*sections, measure, "evaluate: [mine.yaml]"]))
    with pytest.raises(HqltError, match=r"mine\.yaml is a task file, which may run code"):
        load("question.yaml")
    with temporarily():
        include("mine.yaml")
        assert load("question.yaml").evaluate.tasks == ["mine.yaml"]
    with pytest.raises(HqltError, match="which may run code"):
        load("question.yaml")
