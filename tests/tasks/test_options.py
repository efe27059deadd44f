"""Settings that make no task are refused, where they were written and with what to do."""

import pytest

import hqlt_lab as lab
from hqlt_lab.errors import ConfigError, RegistryError

REFUSED = {
    "task.train_length: the shortest and the longest size are needed, as [3, 40]; got [40].": {"train_length": [40]},
    "task.test_length: the shortest size comes first. Use [40, 256].": {"test_length": [256, 40]},
    "task.valid_length: with these options the sizes of the task start at": {"valid_length": [0, 300]},
    "task.eval_size: at least 1 is needed, got 0.": {"eval_size": 0},
}


@pytest.mark.parametrize("message", REFUSED)
def test_ill_formed_lengths_are_explained(name, message):
    with pytest.raises(ConfigError) as error:
        lab.build("task", {"name": name, **REFUSED[message]})
    assert str(error.value).startswith(message)


def test_all_mistakes_are_told_at_once_each_with_its_place():
    with pytest.raises(ConfigError) as error:
        lab.build("task", {"name": "parity", "train_length": [9, 3], "eval_size": 0}, at="arms.long.task")
    assert [line.split(":")[0] for line in str(error.value).splitlines()] == [
        "arms.long.task.train_length",
        "arms.long.task.eval_size",
    ]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"name": "modular_arithmetic", "modulus": 1}, "task.modulus: at least 2 is needed, got 1."),
        ({"name": "modular_arithmetic", "train_length": [2, 9]}, "task.train_length: with these options the sizes"),
        ({"name": "cycle_navigation", "places": 1}, "task.places: at least 2 is needed, got 1."),
        ({"name": "cycle_navigation", "max_step": 0}, "task.max_step: at least 1 is needed, got 0."),
        ({"name": "associative_recall", "pairs": 0}, "task.pairs: at least 1 is needed, got 0."),
        ({"name": "associative_recall", "keys": 7}, "task.keys: at least 8 is needed, got 7."),
        ({"name": "associative_recall", "values": 7}, "task.values: at least 8 is needed, got 7."),
        ({"name": "associative_recall", "power": 0}, "task.power: a number above 0 is needed, got 0."),
        (
            {"name": "associative_recall", "pairs": 17},
            "task.train_length: with these options the sizes of the task start",
        ),
        (
            {"name": "selective_copying", "items": 40},
            "task.train_length: with these options the sizes of the task start",
        ),
        ({"name": "selective_copying", "symbols": 1}, "task.symbols: at least 2 is needed, got 1."),
        ({"name": "induction", "symbols": 1}, "task.symbols: at least 2 is needed, got 1."),
    ],
    ids=str,
)
def test_ill_formed_options_are_explained(spec, message):
    with pytest.raises(ConfigError) as error:
        lab.build("task", spec)
    assert str(error.value).startswith(message)


def test_half_an_expression_in_brackets_has_no_answer():
    with pytest.raises(ConfigError, match="label: half an expression in brackets has no value"):
        lab.build("task", {"name": "modular_arithmetic", "brackets": True, "label": "every"})


def test_every_prefix_can_be_taught_while_the_last_answer_is_tested():
    often, last, both = (
        lab.build("task", {"name": "parity", "label": label}) for label in ("every", "last", "every_in_training")
    )
    for split, as_in in {"train": often, "short": last, "valid": last, "test": last}.items():
        for got, expected in zip(both.examples(split, 3, 0, 50), as_in.examples(split, 3, 0, 50), strict=True):
            assert got.equal(expected)
    assert (often.examples("test", 0, 0, 50).labels >= 0).sum() > (last.examples("test", 0, 0, 50).labels >= 0).sum()


@pytest.mark.parametrize("name", ["associative_recall", "selective_copying", "induction"])
def test_a_task_that_asks_at_places_of_its_own_has_no_label_option(name):
    with pytest.raises(RegistryError, match="has no option 'label'"):
        lab.build("task", {"name": name, "label": "every"})


def test_values_of_the_wrong_type_are_refused():
    with pytest.raises(RegistryError, match=r"task.train_length: task 'parity' takes list of int here, got 3\."):
        lab.build("task", {"name": "parity", "train_length": 3})


def test_every_option_changes_the_examples():
    """An axis that does nothing would be an ablation of nothing."""
    others = {
        "parity": {"train_length": [3, 41], "label": "every"},
        "even_pairs": {"train_length": [3, 41], "label": "every"},
        "modular_arithmetic": {"modulus": 7, "brackets": True, "label": "every", "train_length": [3, 41]},
        "cycle_navigation": {"places": 6, "max_step": 2, "label": "every"},
        "permutation_composition": {"group": "S5", "label": "last"},
        "associative_recall": {"pairs": 4, "keys": 32, "values": 32, "power": 1.0, "train_length": [64, 70]},
        "selective_copying": {"items": 4, "symbols": 4, "train_length": [32, 65]},
        "induction": {"symbols": 8, "train_length": [16, 65]},
    }
    for name, changes in others.items():
        usual = lab.build("task", name).examples("train", 0, 0, 64)
        for option, value in changes.items():
            changed = lab.build("task", {"name": name, option: value}).examples("train", 0, 0, 64)
            assert [x.tolist() for x in usual] != [x.tolist() for x in changed], f"{name}: {option}"
