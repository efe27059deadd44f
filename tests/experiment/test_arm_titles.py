"""An arm's title carries its name and levels, so that a name may contain commas and equals signs."""

import copy
import json
import pickle

import pytest

from hqlt_lab.experiment.arm_title import ArmTitle
from hqlt_lab.experiment.cell import cell_from_dict
from hqlt_lab.experiment.cell_filters import filter_cells, format_filters, labels_from_cell, parse_filters
from hqlt_lab.experiment.cell_key import cell_key
from hqlt_lab.experiment.expand_cells import expand_plan
from hqlt_lab.experiment.load_experiment import load_experiment
from tests.issues import list_codes, raises_issue

BASE = """
question: Which arm?
task: {name: parity, train_length: [3, 20], test_length: [20, 40]}
model: {width: 8, heads: 1, layers: 1, mlp_width: 8}
seeds: 1
"""
TITLE = ArmTitle("a, b", {"model.mixer": {"name": "sum"}, "model.timing.window": 4})


@pytest.fixture
def load_with(tmp_path):
    def load(sections):
        (tmp_path / "q.yaml").write_text(BASE + sections)
        return load_experiment(tmp_path / "q.yaml")

    return load


@pytest.mark.parametrize(
    "restore",
    [
        lambda title: pickle.loads(pickle.dumps(title)),
        copy.deepcopy,
        lambda title: ArmTitle.from_dict(json.loads(json.dumps(title.to_dict()))),
    ],
    ids=["pickle", "copy", "JSON"],
)
def test_title_keeps_its_name_and_levels(restore):
    title = restore(TITLE)
    assert (title, title.name, title.levels) == ("a, b, mixer=sum, window=4", "a, b", TITLE.levels)


@pytest.mark.parametrize("stored", [{"name": 3, "levels": {}}, {"name": "a", "levels": []}])
def test_stored_title_of_other_types_is_an_error(stored):
    with pytest.raises(ValueError, match="name"):
        ArmTitle.from_dict(stored)


def test_levels_that_a_baseline_has_too_are_dropped():
    baseline = ArmTitle("base", {"model.mixer": {"name": "sum"}, "model.timing.window": 8})
    assert TITLE.drop_levels(baseline) == "a, b, window=4"


def test_cell_of_an_arm_with_a_comma_keeps_its_name_and_key_when_it_is_stored(load_with):
    experiment = load_with('arms: {"a, b": {model.mixer: sum}, a: {model.mixer: vector}}\n')
    key, cell = expand_plan(experiment)[0]
    restored = cell_from_dict(json.loads(json.dumps(cell.to_dict())))
    assert (restored.arm.name, labels_from_cell(restored)["arm"], cell_key(restored)) == ("a, b", "a, b", key)


@pytest.mark.parametrize("name", ["a, b", 'say "a"', "a\\", " a ", "a=b", "a,seed=0"])
def test_arm_of_any_name_can_be_selected(load_with, name):
    experiment = load_with(f"arms: {{{json.dumps(name)}: {{model.mixer: sum}}, a: {{model.mixer: vector}}}}\n")
    ((_, cell),) = filter_cells(expand_plan(experiment), [format_filters("arm", [name])])
    assert cell.arm.name == name


def test_quoted_values_and_others_are_read_from_one_filter():
    filters = parse_filters(['arm="a, b",seed=1, arm = c', 'update_rule="delta(max_beta=2,steps=1)"'])
    assert filters == {"arm": {"a, b", "c"}, "seed": {"1"}, "update_rule": {"delta(max_beta=2,steps=1)"}}


@pytest.mark.parametrize(
    ("sections", "path", "other_paths"),
    [
        ('arms: {a: {}, "a, mixer=sum": {}}\none_at_a_time: {model.mixer: [sum]}\n', "arms.a, mixer=sum", ("arms.a",)),
        ('arms: {a: {}}\ncross: {model.mlp_width: [8, "8"]}\n', "arms.a", ()),
    ],
)
def test_two_arms_with_one_title_are_refused(load_with, sections, path, other_paths):
    with raises_issue(path, "same_title") as error:
        load_with(sections)
    (issue,) = [issue for issue in error.value.issues if issue.code == "same_title"]
    assert issue.other_paths == other_paths and len(issue.arms) == 1


def test_identical_arms_are_named_in_the_issue(load_with):
    with raises_issue("arms.b", "identical_arms") as error:
        load_with("arms: {a: {}, b: {}}\n")
    assert [issue.arms for issue in error.value.issues] == [("a", "b")]


def test_arms_that_do_not_train_on_language_are_named_in_the_issue(load_with):
    with raises_issue("evaluate", "evaluation_without_language") as error:
        load_with("arms: {a: {}, b: {model.mixer: sum}}\nevaluate: [piqa]\n")
    assert list_codes(error.value) == [("evaluate", "evaluation_without_language")]  # all arms: reported once
