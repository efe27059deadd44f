"""What every task promises.  A new one is tested by being registered."""

import inspect
import subprocess
import sys
from pathlib import Path

import torch

import hqlt_lab as lab
from hqlt_lab.check.kit import check_part
from hqlt_lab.registry import find
from hqlt_lab.tasks._base import Task
from tests.tasks.conftest import GENERATED

SPLITS = ("train", "short", "valid", "test")


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_it_conforms(spec):
    check_part("task", spec).assert_passed()


def test_file_name_and_class_are_one_word(name):
    maker = find("task", name)
    assert issubclass(maker, Task)
    assert Path(inspect.getsourcefile(maker)).stem == name
    assert maker.__name__ == name.title().replace("_", "")


def test_its_words_are_those_of_its_file(name):
    assert lab.describe("task", name).doc.endswith((".", ")."))
    assert lab.describe("task", name).idea.startswith(name.replace("_", " ").capitalize() + ": ")
    assert f"name: {name}" in lab.describe("task", name).doc or f"task: {name}" in lab.describe("task", name).doc


def test_defaults_are_written_as_in_yaml(name):
    for option in lab.options("task", name).values():
        assert not isinstance(option.default, tuple)
    spelled_out = {option.name: option.default for option in lab.options("task", name).values()}
    plain, filled = lab.build("task", name), lab.build("task", {"name": name, **spelled_out})
    assert same(plain.examples("train", 0, 0, 5), filled.examples("train", 0, 0, 5))


def test_data_seed_changes_the_fixed_sets_alone(name):
    one, other = (lab.build("task", {"name": name, "data_seed": seed}) for seed in (0, 1))
    assert same(one.examples("train", 5, 0, 64), other.examples("train", 5, 0, 64))
    for split in ("short", "valid", "test"):
        assert not same(one.examples(split, 5, 0, 64), other.examples(split, 5, 0, 64))


def test_splits_of_equal_lengths_are_different_sets(name):
    task = lab.build("task", name)
    equal = lab.build("task", {"name": name, "train_length": list(task.test_length)})
    rows = [tuple(row) for split in SPLITS for row in equal.examples(split, 0, 0, 500).tokens.tolist()]
    assert len(set(rows)) == len(rows)


def test_valid_is_as_long_as_test_unless_told(name):
    task = lab.build("task", name)
    assert task.lengths["valid"] == task.lengths["test"] and task.lengths["short"] == task.lengths["train"]
    longest = task.test_length[1]
    assert lab.build("task", {"name": name, "valid_length": [longest, longest]}).lengths["valid"][0] >= longest - 1


def test_answers_are_balanced_as_chance_says(name):
    task = lab.build("task", name)
    labels = task.examples("test", 0, 0, 8192).labels
    answers, counts = labels[labels >= 0].unique(return_counts=True)
    assert len(answers) == round(100 / task.chance)
    share = counts / counts.sum()
    assert (share - task.chance / 100).abs().max() < 5 * (task.chance / 100 / counts.sum()) ** 0.5


def test_variety_counts_the_inputs(task):
    """Never fewer than were seen, and all of them where they are few."""
    small = lab.build("task", {"name": registered(task), **small_options(task)})
    size = small.lengths["short"][0]
    seen = len(small.examples("short", 0, 0, 20_000).tokens.unique(dim=0))
    assert seen <= small.variety(size)
    assert small.variety(size) > 2000 or seen == small.variety(size)


def small_options(task):
    shortest = task.reach(task.shortest, task.shortest)[0]
    return own_options(task) | {"train_length": [shortest, shortest]}


def own_options(task):
    return {key: getattr(task, key) for key in lab.options("task", registered(task)) if not key.endswith("_length")}


def registered(task):
    return next(name for name in lab.available("task") if type(task) is find("task", name))


def test_a_task_says_where_its_splits_must_share_inputs():
    parity = lab.build("task", "parity")
    assert parity.repeats("test") is None and parity.repeats("valid") is None
    assert parity.repeats("short") == (
        "short: there are only 4 different inputs of size 3, so that the same ones occur in other splits."
    )
    short = lab.build("task", {"name": "parity", "train_length": [3, 9], "test_length": [10, 20]})
    assert "512 different inputs of size 10" in short.repeats("test")
    assert lab.build("task", {"name": "parity", "test_length": [20, 30]}).repeats("test", trained=1000) is None


def test_other_processes_make_the_same_examples():
    program = (
        "import hqlt_lab as lab, hashlib\n"
        "rows = [lab.build('task', name).examples(split, 7, 1000, 20)"
        f" for name in {GENERATED} for split in ('train', 'test')]\n"
        "print(hashlib.sha256(b''.join(x.numpy().tobytes() for row in rows for x in row)).hexdigest())"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True)
        for seed in ("1", "2")
    ]
    assert len(runs[0].stdout) == 65, runs[0].stderr
    assert runs[0].stdout == runs[1].stdout
