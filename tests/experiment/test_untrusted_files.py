"""Malicious experiment files are rejected quickly with a clear error, and never run code."""

import os
import time
from pathlib import Path

import pytest

from hqlt_lab.experiment.load_experiment import load_experiment
from hqlt_lab.experiment.yaml.interpolation import resolve_interpolations
from hqlt_lab.experiment.yaml.safe_load import MAX_FILE_BYTES
from hqlt_lab.registry import build, load_components, temporary_components
from tests.issues import raises_issue

VALID = """question: Does it read?
task: {name: parity, train_length: [3, 8], test_length: [8, 16]}
model: {width: 16, heads: 2, layers: 1}
train: {steps: 2, batch_size: 4}
seeds: 1
"""
MAX_SECONDS = 5.0  # of CPU time
BOMB = "b0: &b0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"b{n}: &b{n} [{', '.join([f'*b{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
MERGES = "b0: &b0 {x0: 1}\n" + "".join(
    f"b{n}: &b{n} {{<<: [{', '.join([f'*b{n - 1}'] * 9)}], x{n}: 1}}\n" for n in range(1, 12)
)
LAUGHS = "layers: 1, k0: haha, " + ", ".join(f"k{n}: '{f'${{model.k{n - 1}}}' * 10}'" for n in range(1, 12))
AXES = ("train.lr", "train.clip", "train.warmup", "model.width", "model.heads", "model.layers", "task.eval_size")
GRID = "".join(f"  {path}: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n" for path in AXES)

# name: (text of the file, path and code of an expected issue)
FILES = {
    "an object": (VALID + "arms: {a: !!python/object/apply:os.system ['touch PWNED']}\n", "", "yaml_tag"),
    "a name of Python": (VALID + "quoted: !!python/name:os.system\n", "", "yaml_tag"),
    "a custom tag": (VALID + "quoted: !mine {}\n", "", "yaml_tag"),
    "a tag with a wrong value": (VALID.replace("seeds: 1", "seeds: !!int many"), "", "yaml_tag"),
    "a billion laughs": (VALID + BOMB, "", "yaml_anchor_expansion"),
    "a billion merges": (VALID + MERGES, "", "yaml_anchor_expansion"),
    "an anchor inside itself": (VALID + "quoted: &a {b: *a}\n", "", "yaml_recursive_anchor"),
    "a key twice": (VALID + "seeds: 2\n", "", "yaml_duplicate_key"),
    "two documents": (VALID + "---\n" + VALID, "", "yaml_second_document"),
    "not UTF-8": (VALID.encode().replace(b"Does", b"D\xe9s"), "", "not_utf8"),
    "deep lists": (VALID + f"quoted: {'[' * 20_000}{']' * 20_000}\n", "", "nested_too_deeply"),
    "deep mappings": (VALID + f"quoted: {'{a: ' * 20_000}1{'}' * 20_000}\n", "", "nested_too_deeply"),
    "a deep path": (VALID + f"arms: {{a: {{model{'.x' * 400}: 1}}}}\n", f"arms.a.model{'.x' * 9}", "path_too_deep"),
    "many values": (VALID + f"quoted: [{'1, ' * 20_000}]\n", "", "too_many_values"),
    "a long value": (VALID.replace("Does it read?", "?" * 5000), "", "value_too_long"),
    "a long number": (VALID.replace("seeds: 1", "seeds: " + "9" * 6000), "", "value_too_long"),
    "a large file": (VALID + "#" * (MAX_FILE_BYTES + 1), "", "file_too_large"),
    "an escape in the question": (VALID.replace("Does it read?", '"\\e[2J\\e]0;mine\\a"'), "", "control_character"),
    "an escape in an arm": (VALID + 'arms: {"\\e[31mred": {}}\n', "", "control_character"),
    "bidirectional control characters": (VALID.replace("Does it read?", '"a\\u202Eb"'), "", "control_character"),
    "a null character": (VALID.replace("Does it read?", '"a\\0b"'), "", "control_character"),
    "the environment": (VALID.replace("Does it read?", "${oc.env:SECRET}"), "", "invalid_reference"),
    "the environment in a key": (VALID + "arms: {'${oc.env:SECRET}': {}}\n", "", "invalid_reference"),
    "the environment, decoded": (VALID.replace("16,", "'${oc.decode:${oc.env:SECRET}}',"), "", "invalid_reference"),
    "a resolver": (VALID.replace("16,", "'${oc.create:{a: 1}}',"), "", "invalid_reference"),
    "a deep reference": (VALID.replace("16,", f"'{'${' * 900}a{'}' * 900}',"), "", "invalid_reference"),
    "a reference to itself": (VALID.replace("16,", "'${model.width}',"), "model.width", "circular_reference"),
    "a long chain of references": (
        VALID + "agent: {" + ", ".join(f"a{n}: '${{agent.a{n + 1}}}'" for n in range(600)) + ", a600: 1}\n",
        "agent.a0",
        "reference_chain_too_long",
    ),
    "circular references": (
        VALID.replace("16,", "'${model.heads}',").replace("2,", "'${model.width}',"),
        "model.width",
        "circular_reference",
    ),
    "a reference to its own section": (VALID.replace("16,", "'${model}',"), "model.width.width", "circular_reference"),
    "a billion laughs by reference": (VALID.replace("layers: 1", LAUGHS), "model.k4", "references_too_large"),
    "many seeds": (VALID.replace("seeds: 1", "seeds: 1000000000"), "arms", "too_many_cells"),
    "many tuning seeds": (VALID + "tune_seeds: 1000000000\n", "arms", "too_many_cells"),
    "a seed beyond 64 bits": (VALID.replace("seeds: 1", "seeds: [1000000000000000000000]"), "seeds", "invalid_seeds"),
    "a huge cross": (f"{VALID}cross:\n{GRID}", "arms", "too_many_compositions"),
    "a huge grid": (f"{VALID}tune:\n{GRID}", "arms", "too_many_compositions"),
    "a huge search": (VALID + "tune: {train.lr: {low: 1, high: 2, trials: 10000000}}\n", "arms", "too_many_cells"),
    "too many layers": (VALID.replace("layers: 1", "layers: 1000000000"), "model.layers", "above_maximum"),
    "a huge width": (VALID.replace("16,", "99999999999,"), "model.width", "above_maximum"),
    "a width of more than 64 bits": (VALID.replace("16,", f"{'9' * 30},"), "model.width", "setting_of_wrong_type"),
    "not a number": (VALID.replace("steps: 2", "steps: 2, lr: .nan"), "train.lr", "setting_of_wrong_type"),
    "infinity": (VALID.replace("steps: 2", "steps: 2, lr: .inf"), "train.lr", "setting_of_wrong_type"),
    "an import path": (VALID.replace("parity", "os.system"), "task", "unknown_component"),
    "a path": (VALID.replace("parity", "../../evil"), "task", "unknown_component"),
    "a hidden module": (VALID.replace("parity", "_base"), "task", "unknown_component"),
    "a target": (VALID.replace("parity,", "parity, _target_: os.system,"), "task._target_", "unknown_option"),
    "a plugin": (VALID + "trainer: {plugins: os.system}\n", "trainer.plugins", "unknown_setting"),
    "extends a null character": ('extends: "a\\0b"\n', "", "control_character"),
    "extends a long name": (f"extends: {'a' * 3000}.yaml\n", "", "file_cannot_be_read"),
    "extends a file that is not an experiment": ("extends: /etc/passwd\n", "extends", "not_a_yaml_file"),
    "extends itself": ("extends: question.yaml\n", "extends", "extends_itself"),
}


@pytest.mark.parametrize(("text", "path", "code"), FILES.values(), ids=FILES)
def test_malicious_file_is_rejected_quickly_and_runs_no_code(text, path, code, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "hunter22hunter")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "question.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    start = time.process_time()
    with raises_issue(path, code) as error:
        load_experiment(file)
    assert "hunter22" not in str(error.value) and "\x1b" not in str(error.value)
    assert time.process_time() - start < MAX_SECONDS
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize("create", [os.mkfifo, lambda file: file.symlink_to("/dev/zero")], ids=["pipe", "device"])
def test_pipe_and_device_are_rejected(create, tmp_path):
    create(tmp_path / "endless.yaml")
    (tmp_path / "question.yaml").write_text("extends: endless.yaml\n")
    for name in ("endless.yaml", "question.yaml"):
        with raises_issue("", "not_a_regular_file") as error:
            load_experiment(tmp_path / name)
        assert error.value.issues[0].source == str(tmp_path / "endless.yaml")


def test_long_chain_of_extends_is_rejected(tmp_path):
    for number in range(50):
        (tmp_path / f"{number}.yaml").write_text(f"extends: {number + 1}.yaml\n")
    (tmp_path / "50.yaml").write_text(VALID)
    with raises_issue("extends", "extends_too_deep"):
        load_experiment(tmp_path / "0.yaml")


@pytest.mark.parametrize("name", ["..yaml", "...yaml", ".hidden.yaml", "a\x1b[2J.yaml", f"{'a' * 160}.yaml"])
def test_file_name_that_is_unsafe_as_a_folder_name_is_rejected(name, tmp_path):
    """A study named `..` would write to runs/studies/.., the folder of all runs."""
    (tmp_path / name).write_text(VALID)
    with raises_issue("", "invalid_study_name"):
        load_experiment(tmp_path / name)


def test_number_of_workers_is_limited():
    with raises_issue("launcher.workers", "above_maximum"):
        build("launcher", {"name": "local", "workers": 1_000_000})


def test_override_is_checked_like_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "hunter22hunter")
    (tmp_path / "question.yaml").write_text(VALID)
    for value in ("${oc.env:SECRET}", "!!python/name:os.system", "[" * 5000, "\x1b[2J"):
        with raises_issue("", "invalid_value") as error:
            load_experiment(tmp_path / "question.yaml", [f"question={value}"])
        assert error.value.issues[0].source == f"--set question={value}" and "hunter22" not in str(error.value)


def test_references_keep_types_and_can_be_inside_strings():
    config = {
        "train": {"steps": 10, "lr_horizon": "${train.steps}"},
        "task": {"data": "data/${task.name}", "name": "x"},
    }
    assert resolve_interpolations(config) == {
        "train": {"steps": 10, "lr_horizon": 10},
        "task": {"data": "data/x", "name": "x"},
    }


def test_task_file_is_rejected_unless_it_was_loaded_with_the_command_line(tmp_path, monkeypatch):
    """A task file can run code: lm-eval calls the functions it names, and its templates can access any object."""
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("task: mine\ndoc_to_text: !function evil.touch\n")
    text = "task: {name: language, data: nowhere, vocabulary_size: 256}"
    sections = [text if line.startswith("task:") else line for line in VALID.splitlines()]
    measure = "measure: {select: valid/loss, report: [test/perplexity], direction: minimize}"
    Path("question.yaml").write_text("\n".join([*sections, measure, "evaluate: [mine.yaml]"]))
    with raises_issue("evaluate.tasks", "task_file_not_loaded"):
        load_experiment("question.yaml")
    with temporary_components():
        load_components("mine.yaml")
        assert load_experiment("question.yaml").evaluate.tasks == ["mine.yaml"]
    with raises_issue("evaluate.tasks", "task_file_not_loaded"):
        load_experiment("question.yaml")
