"""Fixtures over every registered task that generates examples, with defaults and in variants."""

import pytest

import hqlt_lab as lab
from hqlt_lab.registry import find_factory
from hqlt_lab.tasks._generated_task import GeneratedTask

VARIANTS = [
    {"name": "parity", "label": "every"},
    {"name": "even_pairs", "label": "every"},
    {"name": "cycle_navigation", "label": "every", "cycle_length": 6, "max_step": 2},
    {"name": "modular_arithmetic", "label": "every"},
    {"name": "modular_arithmetic", "modulus": 7},
    {"name": "modular_arithmetic", "brackets": True},
    {"name": "modular_arithmetic", "brackets": True, "modulus": 8, "train_length": [3, 12]},
    {"name": "modular_arithmetic", "multiplication": False, "label": "every"},
    {"name": "modular_arithmetic", "brackets": True, "multiplication": False},
    {"name": "permutation_composition", "group": "S5", "label": "last"},
    {"name": "permutation_composition", "group": "A5"},
    {"name": "associative_recall", "train_length": [33, 70], "power": 1.0},
    {"name": "associative_recall", "pairs": 1, "keys": 2, "values": 2, "train_length": [4, 9]},
    {"name": "associative_recall", "fill": "random", "gap": 5},
    {"name": "associative_recall", "rows": 300, "order": "shuffled"},
    {"name": "forgetting_recall", "pairs": 5, "updates": 2, "values": 5, "train_length": [25, 60], "power": 1.0},
    {"name": "forgetting_recall", "updates": 0, "fill": "random"},
    {"name": "compositional_recall", "side": 3, "first_keys": 3, "values": 9, "train_length": [55, 90]},
    {"name": "compositional_recall", "side": 1, "values": 2, "fill": "random"},
    {"name": "word_problem", "group": "S5", "max_moved": 2, "newest_acts": "last", "bos": False},
    {"name": "word_problem", "group": "A4xZ5", "tokens_per_element": 3, "label": "every_in_training"},
    {"name": "word_problem", "group": "Z60", "rows": 99},
    {"name": "state_based_recall", "items": 5, "values": 4, "train_length": [1, 9], "test_length": [3, 20]},
    {"name": "state_based_recall", "check_share": 0.0, "addresses": 20},
    {"name": "tracked_recall", "group": "Z5", "tags": 1, "queries": 2, "train_length": [2, 9]},
    {"name": "selective_copying", "items": 3, "train_length": [6, 20]},
    {"name": "selective_copying", "items": 3, "noise_at": "before_symbols", "marks": "one", "train_length": [8, 20]},
    {"name": "in_context_recall", "noise": 0.3, "train_length": [5, 41], "test_length": [40, 60]},
    {"name": "in_context_recall", "keys": 12, "values": 3},
    {"name": "fuzzy_recall", "train_length": [12, 60], "test_length": [40, 70]},
    {"name": "fuzzy_recall", "keys": 3, "key_length": 2, "value_length": 1},
    {"name": "copying", "letters": 5, "packed": 90},
    {"name": "ngram_lookup", "query": "first", "packed": 120},
    {"name": "ngram_lookup", "letters": 3, "length": 1, "train_length": [2, 9], "test_length": [9, 12]},
    {"name": "dyck", "types": 2, "depth": 3, "train_length": [2, 13]},
    {"name": "stack_manipulation", "train_length": [2, 6], "test_length": [5, 30]},
    *(
        {"name": "string_transduction", "operation": operation, "symbols": 4, "test_length": [3, 20]}
        for operation in ("reverse", "duplicate", "odds_first", "sort")
    ),
    {
        "name": "in_context_languages",
        "states": [2, 4],
        "symbols": [1, 3],
        "edges": [1, 1],
        "string_length": [2, 5],
        "train_length": [2, 3],
        "test_length": [3, 9],
    },
    *(
        {"name": "ruler", "kind": kind, "words": 40, "train_length": [low, high], "test_length": [low + 1, high + 3]}
        for kind, low, high in (
            ("niah_single_1", 1, 9),
            ("niah_multikey_2", 1, 9),
            ("niah_multikey_3", 1, 5),
            ("vt", 5, 9),
            ("cwe", 20, 30),
            ("fwe", 250, 260),
        )
    ),
    {"name": "memorization", "keys": 50, "train_length": [4, 20]},
    {"name": "induction", "symbols": 3, "train_length": [3, 9]},
]
GENERATED = [name for name in lab.available("task") if issubclass(find_factory("task", name), GeneratedTask)]
CASES = [*({"name": name} for name in GENERATED), *VARIANTS]


def spec_id(spec):
    return " ".join(str(value) for value in spec.values())


@pytest.fixture(params=CASES, ids=spec_id)
def spec(request):
    return request.param


@pytest.fixture
def task(spec):
    return lab.build("task", spec)


@pytest.fixture(params=GENERATED)
def name(request):
    return request.param
