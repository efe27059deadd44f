"""Invalid task options are errors that name the option and the remedy."""

import pytest

import hqlt_lab as lab
from hqlt_lab.errors import ConfigError
from tests.issues import raises_issue

INVALID_LENGTHS = {
    "train_length": ([40], "not_a_size_range"),
    "test_length": ([256, 40], "sizes_in_wrong_order"),
    "valid_length": ([0, 300], "size_too_small"),
    "eval_size": (0, "below_minimum"),
}


@pytest.mark.parametrize("option", INVALID_LENGTHS)
def test_error_for_invalid_lengths_names_the_option(name, option):
    value, code = INVALID_LENGTHS[option]
    with raises_issue(f"task.{option}", code):
        lab.build("task", {"name": name, option: value})


def test_all_errors_are_reported_together_with_their_location():
    with pytest.raises(ConfigError) as error:
        lab.build("task", {"name": "parity", "train_length": [9, 3], "eval_size": 0}, location="arms.long.task")
    assert [issue.path for issue in error.value.issues] == [
        "arms.long.task.train_length",
        "arms.long.task.eval_size",
    ]


@pytest.mark.parametrize(
    ("spec", "path", "code"),
    [
        ({"name": "modular_arithmetic", "modulus": 1}, "task.modulus", "below_minimum"),
        ({"name": "modular_arithmetic", "train_length": [2, 9]}, "task.train_length", "size_too_small"),
        ({"name": "cycle_navigation", "cycle_length": 1}, "task.cycle_length", "below_minimum"),
        ({"name": "cycle_navigation", "max_step": 0}, "task.max_step", "below_minimum"),
        ({"name": "associative_recall", "pairs": 0}, "task.pairs", "below_minimum"),
        ({"name": "associative_recall", "keys": 7}, "task.keys", "below_minimum"),
        ({"name": "associative_recall", "values": 7}, "task.values", "below_minimum"),
        ({"name": "associative_recall", "power": 0}, "task.power", "not_positive"),
        ({"name": "associative_recall", "pairs": 17}, "task.train_length", "size_too_small"),
        ({"name": "forgetting_recall", "updates": 5}, "task.updates", "more_updates_than_pairs"),
        ({"name": "forgetting_recall", "power": -1}, "task.power", "not_positive"),
        ({"name": "compositional_recall", "side": 9, "values": 80}, "task.values", "below_minimum"),
        ({"name": "dyck", "types": 1}, "task.types", "below_minimum"),
        ({"name": "string_transduction", "symbols": 1}, "task.symbols", "below_minimum"),
        ({"name": "stack_manipulation", "train_length": [1, 9]}, "task.train_length", "size_too_small"),
        ({"name": "copying", "packed": 12}, "task.packed", "below_minimum"),
        ({"name": "ngram_lookup", "train_length": [3, 9]}, "task.train_length", "size_too_small"),
        ({"name": "in_context_recall", "noise": 1.0}, "task.noise", "out_of_range"),
        ({"name": "fuzzy_recall", "keys": 2}, "task.keys", "below_minimum"),
        ({"name": "memorization", "keys": 1}, "task.keys", "below_minimum"),
        ({"name": "selective_copying", "items": 40}, "task.train_length", "size_too_small"),
        ({"name": "selective_copying", "symbols": 1}, "task.symbols", "below_minimum"),
        ({"name": "word_problem", "group": "D4"}, "task.group", "invalid_group"),
        ({"name": "word_problem", "group": "S9"}, "task.group", "invalid_group"),
        ({"name": "word_problem", "group": "Z1"}, "task.group", "invalid_group"),
        ({"name": "word_problem", "group": "A4xZ5", "max_moved": 2}, "task.max_moved", "no_permutations"),
        ({"name": "word_problem", "tokens_per_element": 0}, "task.tokens_per_element", "below_minimum"),
        ({"name": "state_based_recall", "items": 4}, "task.items", "below_minimum"),
        ({"name": "state_based_recall", "check_share": 1.0}, "task.check_share", "out_of_range"),
        ({"name": "tracked_recall", "tags": 0}, "task.tags", "below_minimum"),
        ({"name": "tracked_recall", "group": "S3x"}, "task.group", "invalid_group"),
        ({"name": "tracked_recall", "queries": 17}, "task.train_length", "size_too_small"),
        ({"name": "in_context_languages", "symbols": [4, 61]}, "task.symbols", "too_many_symbols"),
        ({"name": "in_context_languages", "states": [3, 12]}, "task.edges", "too_many_edges"),
        ({"name": "in_context_languages", "symbols": [2, 12]}, "task.edges", "too_many_edges"),
        ({"name": "in_context_languages", "string_length": [9, 2]}, "task.string_length", "sizes_in_wrong_order"),
        ({"name": "in_context_languages", "edges": [0, 2]}, "task.edges", "size_too_small"),
        ({"name": "ruler", "kind": "niah_multikey_2", "words": 191}, "task.words", "below_minimum"),
        ({"name": "ruler", "kind": "cwe", "train_length": [19, 40]}, "task.train_length", "size_too_small"),
        ({"name": "ruler", "kind": "vt", "packed": 100}, "task.packed", "below_minimum"),
        ({"name": "induction", "symbols": 1}, "task.symbols", "below_minimum"),
    ],
    ids=str,
)
def test_error_for_invalid_options_names_the_option(spec, path, code):
    with raises_issue(path, code):
        lab.build("task", spec)


def test_labels_for_every_prefix_of_bracket_expressions_are_an_error():
    with raises_issue("task.label", "label_with_brackets"):
        lab.build("task", {"name": "modular_arithmetic", "brackets": True, "label": "every"})


def test_every_in_training_labels_every_prefix_only_in_train():
    every, last, mixed = (
        lab.build("task", {"name": "parity", "label": label}) for label in ("every", "last", "every_in_training")
    )
    for split, expected in {"train": every, "short": last, "valid": last, "test": last}.items():
        for a, b in zip(mixed.get_examples(split, 3, 0, 50), expected.get_examples(split, 3, 0, 50), strict=True):
            assert a.equal(b)
    assert (every.get_examples("test", 0, 0, 50).labels >= 0).sum() > (
        last.get_examples("test", 0, 0, 50).labels >= 0
    ).sum()


@pytest.mark.parametrize("name", ["associative_recall", "selective_copying", "induction"])
def test_task_with_fixed_label_positions_has_no_label_option(name):
    with raises_issue("task.label", "unknown_option"):
        lab.build("task", {"name": name, "label": "every"})


def test_option_of_the_wrong_type_is_an_error():
    with raises_issue("task.train_length", "option_of_wrong_type"):
        lab.build("task", {"name": "parity", "train_length": 3})


def test_every_option_changes_the_examples():
    """An option without effect would make an ablation over it meaningless."""
    changed_options = {
        "parity": {"train_length": [3, 41], "label": "every"},
        "even_pairs": {"train_length": [3, 41], "label": "every"},
        "modular_arithmetic": {"modulus": 7, "brackets": True, "label": "every", "train_length": [3, 41]},
        "cycle_navigation": {"cycle_length": 6, "max_step": 2, "label": "every"},
        "permutation_composition": {"group": "S5", "label": "last"},
        "associative_recall": {
            "pairs": 4,
            "keys": 32,
            "values": 32,
            "power": 1.0,
            "train_length": [64, 70],
            "gap": 2,
            "fill": "random",
            "targets": "all_next",
            "rows": 20,
            "segments": [{"rows": 99, "pairs": 3}],
        },
        "word_problem": {
            "group": "S4",
            "max_moved": 2,
            "tokens_per_element": 2,
            "newest_acts": "last",
            "bos": False,
            "label": "last",
        },
        "state_based_recall": {"items": 9, "values": 3, "check_share": 0.1, "train_length": [8, 9]},
        "tracked_recall": {"group": "Z6", "tags": 3, "values": 8, "queries": 2, "train_length": [15, 16]},
        "in_context_languages": {
            "states": [5, 12],
            "symbols": [5, 18],
            "edges": [2, 3],
            "string_length": [1, 48],
            "train_length": [10, 18],
        },
        "ruler": {"kind": "vt", "words": 500, "packed": 300, "train_length": [48, 49]},
        "selective_copying": {"items": 4, "symbols": 4, "train_length": [32, 65]},
        "induction": {"symbols": 8, "train_length": [16, 65]},
    }
    for name, changes in changed_options.items():
        default = lab.build("task", name).get_examples("train", 0, 0, 64)
        for option, value in changes.items():
            changed = lab.build("task", {"name": name, option: value}).get_examples("train", 0, 0, 64)
            assert [x.tolist() for x in default] != [x.tolist() for x in changed], f"{name}: {option}"


def test_documentation_of_associative_recall_names_the_model_setting_that_it_needs():
    assert "short_conv" in lab.describe("task", "associative_recall").doc
