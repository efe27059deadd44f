"""The two tasks of the paper, to the letter; and what each other task fixes."""

import numpy as np
import pytest
import torch

import hqlt_lab as lab


def sizes(task, split):
    return sorted(task.examples(split, 0, 0, 8192).lengths.unique().tolist())


def uneven(lengths):
    """By how many standard deviations the commonest size differs from its share."""
    counts = lengths.unique(return_counts=True)[1].double()
    return float(((counts - counts.mean()) / counts.mean().sqrt()).abs().max())


def test_parity_has_three_tokens_and_both_answers_alike():
    task = lab.build("task", "parity")
    assert (task.vocabulary, task.chance, task.eval_size) == (3, 50.0, 8192)
    batch = task.examples("valid", 0, 0, 8192)
    assert batch.tokens.unique().tolist() == [0, 1, 2]
    ones = (batch.tokens == 2).sum(1)
    assert torch.equal(batch.labels.amax(1), 1 + ones % 2)


def test_parity_sizes_count_the_answer():
    task = lab.build("task", "parity")
    assert sizes(task, "train") == list(range(3, 41)) and sizes(task, "valid") == list(range(40, 257))
    batch = task.examples("train", 0, 0, 8192)
    assert batch.tokens.shape[1] == 39 and task.tokens_in("test") == 255
    assert torch.equal((batch.tokens > 0).sum(1), batch.lengths - 1)
    assert torch.equal((batch.labels >= 0).int().argmax(1), batch.lengths - 2)
    assert uneven(batch.lengths) < 4.5


def test_modular_arithmetic_sizes_are_odd():
    task = lab.build("task", "modular_arithmetic")
    assert (task.vocabulary, task.chance) == (10, 20.0)
    assert sizes(task, "train") == list(range(3, 40, 2)) and sizes(task, "valid") == list(range(39, 256, 2))
    assert uneven(task.examples("train", 0, 0, 8192).lengths) < 4.5


def test_modular_arithmetic_alternates_digits_and_operators_up_to_equals():
    batch = lab.build("task", "modular_arithmetic").examples("valid", 0, 0, 2000)
    end = batch.lengths[:, None] - 2
    place = torch.arange(batch.tokens.shape[1])
    assert (batch.tokens.gather(1, end) == 4).all() and (batch.tokens == 4).sum() == 2000
    digits, operators = batch.tokens[(place < end) & (place % 2 == 0)], batch.tokens[(place < end) & (place % 2 == 1)]
    assert digits.unique().tolist() == [5, 6, 7, 8, 9] and operators.unique().tolist() == [1, 2, 3]
    assert torch.equal((batch.labels >= 0).int().argmax(1, keepdim=True), end)
    assert batch.labels[batch.labels >= 0].unique().tolist() == [5, 6, 7, 8, 9]


def test_the_shortest_modular_arithmetic_is_a_digit():
    task = lab.build("task", {"name": "modular_arithmetic", "train_length": [3, 3]})
    batch = task.examples("train", 0, 0, 50)
    assert batch.tokens.shape == (50, 2)
    assert torch.equal(batch.tokens[:, 0], batch.labels[:, 1])


def test_brackets_fill_the_size_but_for_equals_answer_and_padding():
    task = lab.build("task", {"name": "modular_arithmetic", "brackets": True})
    assert task.vocabulary == 12 and task.lengths["train"] == (5, 40)
    batch = task.examples("train", 0, 0, 8192)
    assert torch.equal((batch.tokens > 0).sum(1), batch.lengths - 2)
    lifted = (batch.lengths == 5).sum() / (batch.lengths == 6).sum()
    assert 2.4 < lifted < 3.7, "sizes 3, 4 and 5 are all 5"


def test_brackets_have_the_shapes_of_their_grammar():
    task = lab.build("task", {"name": "modular_arithmetic", "brackets": True, "train_length": [3, 8]})
    batch = task.examples("train", 0, 0, 4000)
    shapes = {
        "".join("d" if word.isdigit() else word for word in task.decode(batch, i).split()[:-2]) for i in range(4000)
    }
    leaves = {"-d", "(d)", "(-d)"}
    assert shapes == leaves | {f"(d{operator}d)" for operator in "+-*"}


def test_cycle_navigation_numbers_moves_then_places():
    batch = lab.build("task", "cycle_navigation").examples("test", 0, 0, 2000)
    assert batch.tokens.unique().tolist() == [0, 1, 2, 3]
    assert batch.labels.unique().tolist() == [-1, 4, 5, 6, 7, 8]
    assert lab.build("task", {"name": "cycle_navigation", "places": 6}).vocabulary == 10


def test_the_first_permutation_acts_first_and_token_1_is_the_identity():
    task = lab.build("task", "permutation_composition")
    assert task.alphabet == ("_", "012", "021", "102", "120", "201", "210")
    turn, swap = task.elements.index((1, 2, 0)), task.elements.index((1, 0, 2))
    # 0 -> 1 -> 0, 1 -> 2 -> 2, 2 -> 0 -> 1
    assert task.elements[task.product[swap, turn]] == (0, 2, 1)


def test_groups_have_their_order():
    orders = {"S3": 6, "S4": 24, "S5": 120, "A5": 60}
    for group, order in orders.items():
        task = lab.build("task", {"name": "permutation_composition", "group": group})
        assert task.vocabulary == 1 + order and task.chance == 100 / order
        assert sorted(task.product[0].tolist()) == sorted(task.product[:, 0].tolist()) == list(range(order))


@pytest.mark.parametrize("power", [0.01, 0.5, 1.0])
def test_recall_asks_each_key_once_in_slots_drawn_by_weight(power):
    labels = lab.build("task", {"name": "associative_recall", "power": power}).examples("test", 0, 0, 8192).labels
    assert ((labels >= 0).sum(1) == 8).all() and (labels[:, :16] == -1).all() and (labels[:, 17::2] == -1).all()
    weight = np.arange(1, 25) ** (power - 1)
    random = np.random.default_rng(0)
    chosen = [random.choice(24, 8, replace=False, p=weight / weight.sum()) for _ in range(8192)]
    share = (labels >= 0).numpy().mean(0)[16::2]
    assert np.abs(share - np.bincount(np.concatenate(chosen)) / 8192).max() < 0.04


def test_the_examples_of_the_paper_never_change():
    """A name keeps its meaning: whoever changes these strings makes old results incomparable."""
    shown = {}
    for name in ("parity", "modular_arithmetic"):
        task = lab.build("task", {"name": name, "train_length": [3, 15]})
        batch = task.examples("train", 0, 0, 3)
        shown[name] = [task.decode(batch, row) for row in range(3)]
    assert shown == {
        "parity": ["0 1 0 0 0 1 1 0 1 0 [0]", "1 1 1 1 1 1 0 0 [0]", "1 0 1 0 0 1 1 [0]"],
        "modular_arithmetic": ["4 - 4 - 0 + 2 * 3 + 4 = [0]", "2 - 3 - 1 - 1 + 4 * 1 + 4 = [0]", "2 + 4 = [1]"],
    }


def test_in_brackets_who_always_says_0_is_right_three_times_in_ten():
    task = lab.build("task", {"name": "modular_arithmetic", "brackets": True})
    labels = task.examples("valid", 0, 0, 8192).labels
    zeros = 100 * float((labels[labels >= 0] == 5).double().mean())
    assert abs(task.by_guessing["accuracy"] - zeros) < 5 and 27 < zeros < 33
    assert task.by_guessing["normalised_accuracy"] == (task.by_guessing["accuracy"] - 20) / 0.8
    assert lab.build("task", "modular_arithmetic").by_guessing == {"accuracy": 20.0, "normalised_accuracy": 0.0}
