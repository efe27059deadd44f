"""The task interface, tested for every registered task."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.check.conformance import check_component
from hqlt_lab.registry import find_factory
from hqlt_lab.tasks._base import Task
from tests.tasks.conftest import GENERATED

SPLITS = ("train", "short", "valid", "test")
LENGTH_OPTIONS = ("train_length", "valid_length", "test_length")


def equal_batches(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_task_passes_the_conformance_checks(spec):
    check_component("task", spec).assert_passed()


def test_file_and_class_are_named_after_the_task(name):
    task_class = find_factory("task", name)
    assert issubclass(task_class, Task)
    assert Path(inspect.getsourcefile(task_class)).stem == name
    assert task_class.__name__ == name.title().replace("_", "")


def test_description_comes_from_the_module_docstring(name):
    assert lab.describe("task", name).doc.endswith((".", ")."))
    assert lab.describe("task", name).summary.startswith(name.replace("_", " ").capitalize() + ": ")
    assert f"name: {name}" in lab.describe("task", name).doc or f"task: {name}" in lab.describe("task", name).doc


def test_defaults_are_valid_yaml_values(name):
    for option in lab.options("task", name).values():
        assert not isinstance(option.default, tuple)
    spelled_out = {option.name: option.default for option in lab.options("task", name).values()}
    default, explicit = lab.build("task", name), lab.build("task", {"name": name, **spelled_out})
    assert equal_batches(default.get_examples("train", 0, 0, 5), explicit.get_examples("train", 0, 0, 5))


def test_data_seed_changes_only_the_fixed_sets(name):
    first, second = (lab.build("task", {"name": name, "data_seed": seed}) for seed in (0, 1))
    assert equal_batches(first.get_examples("train", 5, 0, 64), second.get_examples("train", 5, 0, 64))
    for split in ("short", "valid", "test"):
        assert not equal_batches(first.get_examples(split, 5, 0, 64), second.get_examples(split, 5, 0, 64))


def test_splits_of_equal_lengths_have_different_examples(name):
    task = lab.build("task", name)
    equal = lab.build("task", {"name": name, "train_length": list(task.test_length)})
    rows = [tuple(row) for split in SPLITS for row in equal.get_examples(split, 0, 0, 500).tokens.tolist()]
    assert len(set(rows)) == len(rows)


def test_valid_has_the_lengths_of_test_by_default(name):
    task = lab.build("task", name)
    assert (
        task.length_ranges["valid"] == task.length_ranges["test"]
        and task.length_ranges["short"] == task.length_ranges["train"]
    )
    longest = task.test_length[1]
    assert (
        lab.build("task", {"name": name, "valid_length": [longest, longest]}).length_ranges["valid"][0] >= longest - 1
    )


# tasks in which one label, such as the end of a string, is less frequent than the others
UNEVEN_LABELS = ("copying", "ngram_lookup", "stack_manipulation")


@pytest.mark.parametrize("name", [name for name in GENERATED if name not in UNEVEN_LABELS])
def test_label_frequencies_match_the_chance_level(name):
    task = lab.build("task", name)
    labels = task.get_examples("test", 0, 0, 8192).labels
    distinct, counts = labels[labels >= 0].unique(return_counts=True)
    assert len(distinct) == round(100 / task.chance_level)
    share = counts / counts.sum()
    # labels of a row may depend on each other, so rows are the independent samples
    rows, positions = (labels >= 0).nonzero(as_tuple=True)
    numbers = torch.searchsorted(distinct, labels[rows, positions])
    counts_by_row = torch.zeros(len(labels), len(distinct)).index_put_((rows, numbers), torch.ones(()), accumulate=True)
    by_row = counts_by_row - share * counts_by_row.sum(1, keepdim=True)
    error = by_row.square().sum(0).sqrt() / counts.sum()
    assert ((share - task.chance_level / 100).abs() < 5 * error).all()


def test_count_inputs_matches_the_inputs_that_occur(task):
    """The count is never below the number of observed inputs, and equal to it for small counts."""
    small = lab.build("task", {"name": registered_name(task), **small_options(task)})
    size = small.length_ranges["short"][0]
    if small.count_inputs(size) is None:
        return
    observed = len(small.get_examples("short", 0, 0, 20_000).tokens.unique(dim=0))
    assert observed <= small.count_inputs(size)
    assert small.count_inputs(size) > 2000 or observed == small.count_inputs(size)


def small_options(task):
    shortest = task.size_range(task.min_size, task.min_size)[0]
    return non_length_options(task) | {"train_length": [shortest, shortest], "test_length": [shortest, shortest]}


def non_length_options(task):
    names = lab.options("task", registered_name(task))
    return {name: getattr(task, name) for name in names if name not in LENGTH_OPTIONS}


def registered_name(task):
    return next(name for name in lab.available("task") if type(task) is find_factory("task", name))


@pytest.mark.parametrize(
    "spec",
    [
        {"name": "parity", "train_length": [3, 12], "test_length": [8, 20]},
        {"name": "cycle_navigation", "train_length": [3, 8], "test_length": [6, 10]},
        {"name": "modular_arithmetic", "modulus": 2, "train_length": [3, 11], "test_length": [7, 15]},
        {"name": "modular_arithmetic", "modulus": 3, "brackets": True, "train_length": [5, 9], "test_length": [5, 12]},
        {"name": "induction", "symbols": 3, "train_length": [4, 9], "test_length": [6, 12]},
        {"name": "selective_copying", "items": 2, "symbols": 4, "train_length": [5, 16], "test_length": [8, 24]},
    ],
    ids=lambda spec: spec["name"] + ("_brackets" if "brackets" in spec else ""),
)
def test_the_estimated_overlap_is_the_share_of_test_inputs_that_occur_in_training(spec):
    task = lab.build("task", spec | {"eval_size": 4096})
    observed = observed_overlap(task, 12_800)
    assert 0.05 < observed < 0.95
    assert task.estimate_overlap("test", 12_800) == pytest.approx(observed, abs=0.03)


def observed_overlap(task, train_examples):
    def inputs(split, count):
        return [tuple(row[row > 0].tolist()) for row in task.get_examples(split, 0, 0, count).tokens]

    trained = set(inputs("train", train_examples))
    return sum(row in trained for row in inputs("test", task.eval_size)) / task.eval_size


def test_the_estimated_overlap_of_a_task_with_many_inputs_is_zero(name):
    assert (lab.build("task", name).estimate_overlap("test", 20_480_000) or 0.0) == pytest.approx(0, abs=1e-3)


def test_the_overlap_is_unknown_if_a_task_does_not_count_its_inputs():
    class Uncounted(find_factory("task", "parity")):
        def count_inputs(self, size):
            return None

    assert Uncounted(train_length=(3, 8), test_length=(3, 8)).estimate_overlap("test", 1000) is None


def test_other_processes_generate_the_same_examples():
    program = (
        "import hqlt_lab as lab, hashlib\n"
        "rows = [lab.build('task', name).get_examples(split, 7, 1000, 20)"
        f" for name in {GENERATED} for split in ('train', 'test')]\n"
        "print(hashlib.sha256(b''.join(x.numpy().tobytes() for row in rows for x in row)).hexdigest())"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True)
        for seed in ("1", "2")
    ]
    assert len(runs[0].stdout) == 65, runs[0].stderr
    assert runs[0].stdout == runs[1].stdout
