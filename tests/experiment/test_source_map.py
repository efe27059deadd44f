"""Errors name the line of their cause: in the file, in an extended file, or a command-line option."""

import time

import pytest

from hqlt_lab.errors import HqltError
from hqlt_lab.experiment.load_experiment import load_experiment
from hqlt_lab.experiment.yaml.source_map import SourceMap, find_key_lines
from tests.issues import raises_issue

FILE = """question: Does it?
task:
  name: parity
  train_length: [3, 20]
model:
  width: 64
  timing:
    name: synchronous
    window: 4
train: {steps: 10, lr: 0.1}
arms:
  a: {}
  b:
    model.mixer: sum
    train: {warmup: 3}
cross:
  model.layers: [1, 2]
tune:
  train.weight_decay: [0.1, 0.2]
"""

# name: (text to replace in FILE, replacement, line, path and code of the issue, arms that have it)
MISTAKES = {
    "a setting": ("width: 64", "widht: 64", 6, "model.widht", "unknown_setting", []),
    "a value": ("lr: 0.1", "lr: fast", 10, "train.lr", "setting_of_wrong_type", []),
    "a section": ("train: {steps", "trian: {steps", 10, "trian", "unknown_section", []),
    "an option of a task": ("train_length", "trainlength", 4, "task.trainlength", "unknown_option", []),
    "an option of a component": (
        "    window: 4",
        "    windw: 4",
        9,
        "model.timing.windw",
        "unknown_option",
        [],
    ),
    "the name of a component": ("name: synchronous", "name: snchronous", 8, "model.timing", "unknown_component", []),
    "a setting that is not in the file": (
        "width: 64",
        "width: 65",
        5,
        "model.heads",
        "width_not_divisible",
        [],
    ),
    "a component in an arm": (
        "model.mixer: sum",
        "model.mixer: smu",
        14,
        "model.mixer",
        "unknown_component",
        ["b, layers=1", "b, layers=2"],
    ),
    "a component in an arm that is a mapping in the base": (
        "model.mixer: sum",
        "model.timing: snchronous",
        14,
        "model.timing",
        "unknown_component",
        ["b, layers=1", "b, layers=2"],
    ),
    "a section in an arm": (
        "warmup: 3",
        "wramup: 3",
        15,
        "train.wramup",
        "unknown_setting",
        ["b, layers=1", "b, layers=2"],
    ),
    "a path in an arm": ("model.mixer", "modl.mixer", 14, "arms.b.modl.mixer", "path_cannot_be_set", []),
    "a crossed value": (
        "[1, 2]",
        "[1, two]",
        17,
        "model.layers",
        "setting_of_wrong_type",
        ["a, layers=two", "b, layers=two"],
    ),
    "a crossed path": ("model.layers:", "model.lairs:", 17, "model.lairs", "unknown_setting", []),
    "an axis": ("[1, 2]", "3", 17, "cross.model.layers", "not_a_list_of_values", []),
    "a tuned value": ("[0.1, 0.2]", "[0.1, much]", 19, "train.weight_decay", "setting_of_wrong_type", []),
    "a range": (
        "[0.1, 0.2]",
        "\n    low: 1\n    high: 0",
        20,
        "tune.train.weight_decay.low",
        "range_in_wrong_order",
        [],
    ),
    "a duplicate key": (
        "    train: {warmup: 3}",
        "    model.mixer: vector",
        15,
        "",
        "yaml_duplicate_key",
        [],
    ),
}


@pytest.mark.parametrize(("old", "new", "line", "path", "code", "arms"), MISTAKES.values(), ids=MISTAKES)
def test_mistake_is_reported_with_its_file_and_line(old, new, line, path, code, arms, tmp_path):
    assert FILE.count(old) == 1
    file = tmp_path / "q.yaml"
    file.write_text(FILE.replace(old, new))
    with raises_issue(path, code) as error:
        load_experiment(file)
    (issue,) = error.value.issues
    assert (issue.source, issue.line, list(issue.arms)) == (str(file), line, arms)
    assert str(error.value).startswith(f"{file}, line {line}: ")


def test_mistake_in_an_extended_file_is_reported_with_that_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text(FILE.replace("width", "widht").replace("lr: 0.1", "lr: fast"))
    (tmp_path / "q.yaml").write_text("extends: base.yaml\ntrain: {lr: slow}\nmodel: {timing: sometimes}\n")
    with pytest.raises(HqltError) as error:
        load_experiment("q.yaml", ["train.step=3", "model.mixer.name=smu"])
    assert [(issue.source, issue.line) for issue in error.value.issues] == [
        ("q.yaml", 2), ("q.yaml", 3), ("base.yaml", 6), ("--set model.mixer.name", None), ("--set train.step", None),
    ]  # fmt: skip
    assert [line.partition(": ")[0] for line in str(error.value).splitlines()] == [
        "q.yaml:", "  line 2", "  line 3", "  base.yaml, line 6", "  --set model.mixer.name", "  --set train.step",
    ]  # fmt: skip


def test_replaced_sections_of_an_extended_file_have_no_location(tmp_path):
    source_map = SourceMap()
    source_map.add_file(tmp_path / "base.yaml", FILE)
    source_map.add_file(tmp_path / "q.yaml", "model: {timing: {name: delayed_stream}, heads: 2}\narms: {c: {}}\n")
    locations = source_map.locations
    own_paths = {path for path, location in locations.items() if location.source.endswith("q.yaml")}
    assert own_paths == {"model", "model.timing", "model.timing.name", "model.heads", "arms", "arms.c"}
    assert "model.width" in locations and not {"model.timing.window", "arms.b"} & set(locations)


def test_lists_and_anchors_have_lines():
    text = "model:\n  mixer:\n    - &sum\n      name: sum\n    - *sum\narms:\n  b: {model.timing.window: 3}\n"
    lines = find_key_lines(text)
    assert lines["model.mixer[0].name"] == 4 and lines["model.mixer[1]"] in (3, 5) and lines["arms.b.model.timing"] == 7


def test_key_lines_of_the_largest_allowed_text_are_found_quickly():
    repeated = "b0: &b0 {x: 1}\n" + "".join(f"b{n}: &b{n} {{l: *b{n - 1}, r: *b{n - 1}}}\n" for n in range(1, 60))
    deep = "".join(f"{' ' * level}{'k' * 900}:\n" for level in range(28)) + f"{' ' * 28}k: 1\n" * 4000
    dots = "".join(f"{n}{'.a' * 400}: 1\n" for n in range(1000))
    start = time.process_time()
    assert len(find_key_lines(repeated)) < 300
    assert all(sum(map(len, find_key_lines(text))) < 1_000_000 for text in (deep, dots))
    assert time.process_time() - start < 5
