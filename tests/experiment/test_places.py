"""A mistake is told with the line to look at: in the file, in the one that it extends, or on the command line."""

import time

import pytest

from hqlt_lab.errors import HqltError
from hqlt_lab.experiment.experiment import load
from hqlt_lab.experiment.places import Places, lines_of

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

# what is put in the place of what, and how the complaint begins
MISTAKES = {
    "a setting": ("width: 64", "widht: 64", "line 6: model.widht: there is no such setting."),
    "a value": ("lr: 0.1", "lr: fast", "line 10: train.lr: float is needed"),
    "a section": ("train: {steps", "trian: {steps", "line 10: trian: there is no such section."),
    "an option of a task": ("train_length", "trainlength", "line 4: task: task 'parity' has no option 'trainlength'."),
    "an option of a part": (
        "    window: 4",
        "    windw: 4",
        "line 9: model.timing: timing 'synchronous' has no option",
    ),
    "the name of a part": ("name: synchronous", "name: snchronous", "line 8: model.timing: no timing is called"),
    "what is not written": ("width: 64", "width: 65", "line 5: model.heads: 65 channels do not divide over 4 heads."),
    "a part in an arm": ("model.mixer: sum", "model.mixer: smu", "line 14: arm 'b, layers=1' and 1 more: model.mixer:"),
    "a part in an arm that the base has as a mapping": (
        "model.mixer: sum",
        "model.timing: snchronous",
        "line 14: arm 'b, layers=1' and 1 more: model.timing: no timing is called 'snchronous'",
    ),
    "a section in an arm": ("warmup: 3", "wramup: 3", "line 15: arm 'b, layers=1' and 1 more: train.wramup: there is"),
    "a path in an arm": ("model.mixer", "modl.mixer", "line 14: arms.b: 'modl.mixer' cannot be set."),
    "a crossed value": ("[1, 2]", "[1, two]", "line 17: arm 'a, layers=two' and 1 more: model.layers: int is needed"),
    "a crossed path": ("model.layers:", "model.lairs:", "line 17: model.lairs: there is no such setting."),
    "an axis": ("[1, 2]", "3", "line 17: cross.model.layers: a list of values is needed, got 3."),
    "a tuned value": ("[0.1, 0.2]", "[0.1, much]", "line 19: train.weight_decay: float is needed, got 'much'."),
    "a range": (
        "[0.1, 0.2]",
        "\n    low: 1\n    high: 0",
        "line 20: tune.train.weight_decay: low: 1 is not below high",
    ),
    "the same twice": (
        "    train: {warmup: 3}",
        "    model.mixer: vector",
        "line 15: 'model.mixer' stands there twice.",
    ),
}


@pytest.mark.parametrize(("old", "new", "says"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_with_its_file_and_line(old, new, says, tmp_path):
    assert FILE.count(old) == 1
    file = tmp_path / "q.yaml"
    file.write_text(FILE.replace(old, new))
    with pytest.raises(HqltError) as told:
        load(file)
    assert str(told.value).startswith(f"{file}, {says}")


def test_a_mistake_of_the_file_that_is_extended_is_told_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text(FILE.replace("width", "widht").replace("lr: 0.1", "lr: fast"))
    (tmp_path / "q.yaml").write_text("extends: base.yaml\ntrain: {lr: slow}\nmodel: {timing: sometimes}\n")
    with pytest.raises(HqltError) as told:
        load("q.yaml", ["train.step=3", "model.mixer.name=smu"])
    assert [line.partition(": ")[0] for line in str(told.value).splitlines()] == [
        "q.yaml:", "  line 2", "  line 3", "  base.yaml, line 6", "  --set model.mixer.name", "  --set train.step",
    ]  # fmt: skip


def test_what_a_file_replaces_has_no_place_in_the_one_it_extends(tmp_path):
    places = Places()
    places.add_file(tmp_path / "base.yaml", FILE)
    places.add_file(tmp_path / "q.yaml", "model: {timing: {name: delayed_stream}, heads: 2}\narms: {c: {}}\n")
    known = {path for path, place in places.known.items() if place.where.endswith("q.yaml")}
    assert known == {"model", "model.timing", "model.timing.name", "model.heads", "arms", "arms.c"}
    assert "model.width" in places.known and not {"model.timing.window", "arms.b"} & set(places.known)


def test_lists_and_anchors_have_lines():
    text = "model:\n  mixer:\n    - &sum\n      name: sum\n    - *sum\narms:\n  b: {model.timing.window: 3}\n"
    found = lines_of(text)
    assert found["model.mixer[0].name"] == 4 and found["model.mixer[1]"] in (3, 5) and found["arms.b.model.timing"] == 7


def test_a_text_of_the_largest_extent_has_its_places_soon():
    repeated = "b0: &b0 {x: 1}\n" + "".join(f"b{n}: &b{n} {{l: *b{n - 1}, r: *b{n - 1}}}\n" for n in range(1, 60))
    deep = "".join(f"{' ' * level}{'k' * 900}:\n" for level in range(28)) + f"{' ' * 28}k: 1\n" * 4000
    dots = "".join(f"{n}{'.a' * 400}: 1\n" for n in range(1000))
    began = time.process_time()
    assert len(lines_of(repeated)) < 300
    assert all(sum(map(len, lines_of(text))) < 1_000_000 for text in (deep, dots))
    assert time.process_time() - began < 5
