"""The two tasks of the paper follow its settings exactly, and details of the other tasks."""

import numpy as np
import pytest
import torch

import hqlt_lab as lab


def occurring_sizes(task, split):
    return sorted(task.get_examples(split, 0, 0, 8192).lengths.unique().tolist())


def max_deviation(lengths):
    """Return the largest deviation of a size's count from the mean, in standard deviations."""
    counts = lengths.unique(return_counts=True)[1].double()
    return float(((counts - counts.mean()) / counts.mean().sqrt()).abs().max())


def test_parity_has_three_tokens_and_labels_are_the_parity_of_ones():
    task = lab.build("task", "parity")
    assert (task.vocabulary, task.chance_level, task.eval_size) == (3, 50.0, 8192)
    batch = task.get_examples("valid", 0, 0, 8192)
    assert batch.tokens.unique().tolist() == [0, 1, 2]
    ones = (batch.tokens == 2).sum(1)
    assert torch.equal(batch.labels.amax(1), 1 + ones % 2)


def test_parity_sizes_include_the_answer():
    task = lab.build("task", "parity")
    assert occurring_sizes(task, "train") == list(range(3, 41)) and occurring_sizes(task, "valid") == list(
        range(40, 257)
    )
    batch = task.get_examples("train", 0, 0, 8192)
    assert batch.tokens.shape[1] == 39 and task.sequence_length("test") == 255
    assert torch.equal((batch.tokens > 0).sum(1), batch.lengths - 1)
    assert torch.equal((batch.labels >= 0).int().argmax(1), batch.lengths - 2)
    assert max_deviation(batch.lengths) < 4.5


def test_modular_arithmetic_sizes_are_odd():
    task = lab.build("task", "modular_arithmetic")
    assert (task.vocabulary, task.chance_level) == (10, 20.0)
    assert occurring_sizes(task, "train") == list(range(3, 40, 2)) and occurring_sizes(task, "valid") == list(
        range(39, 256, 2)
    )
    assert max_deviation(task.get_examples("train", 0, 0, 8192).lengths) < 4.5


def test_modular_arithmetic_alternates_digits_and_operators_up_to_equals():
    batch = lab.build("task", "modular_arithmetic").get_examples("valid", 0, 0, 2000)
    end = batch.lengths[:, None] - 2
    position = torch.arange(batch.tokens.shape[1])
    assert (batch.tokens.gather(1, end) == 4).all() and (batch.tokens == 4).sum() == 2000
    digits = batch.tokens[(position < end) & (position % 2 == 0)]
    operators = batch.tokens[(position < end) & (position % 2 == 1)]
    assert digits.unique().tolist() == [5, 6, 7, 8, 9] and operators.unique().tolist() == [1, 2, 3]
    assert torch.equal((batch.labels >= 0).int().argmax(1, keepdim=True), end)
    assert batch.labels[batch.labels >= 0].unique().tolist() == [5, 6, 7, 8, 9]


def test_shortest_modular_arithmetic_is_a_single_digit():
    task = lab.build("task", {"name": "modular_arithmetic", "train_length": [3, 3]})
    batch = task.get_examples("train", 0, 0, 50)
    assert batch.tokens.shape == (50, 2)
    assert torch.equal(batch.tokens[:, 0], batch.labels[:, 1])


def test_bracket_expression_size_includes_equals_answer_and_padding():
    task = lab.build("task", {"name": "modular_arithmetic", "brackets": True})
    assert task.vocabulary == 12 and task.length_ranges["train"] == (5, 40)
    batch = task.get_examples("train", 0, 0, 8192)
    assert torch.equal((batch.tokens > 0).sum(1), batch.lengths - 2)
    ratio = (batch.lengths == 5).sum() / (batch.lengths == 6).sum()
    assert 2.4 < ratio < 3.7, "sizes 3, 4 and 5 all become 5"


def test_bracket_expressions_follow_the_grammar():
    task = lab.build("task", {"name": "modular_arithmetic", "brackets": True, "train_length": [3, 8]})
    batch = task.get_examples("train", 0, 0, 4000)
    shapes = {
        "".join("d" if token.isdigit() else token for token in task.format_example(batch, i).split()[:-2])
        for i in range(4000)
    }
    leaves = {"-d", "(d)", "(-d)"}
    assert shapes == leaves | {f"(d{operator}d)" for operator in "+-*"}


def test_cycle_navigation_numbers_steps_before_positions():
    batch = lab.build("task", "cycle_navigation").get_examples("test", 0, 0, 2000)
    assert batch.tokens.unique().tolist() == [0, 1, 2, 3]
    assert batch.labels.unique().tolist() == [-1, 4, 5, 6, 7, 8]
    assert lab.build("task", {"name": "cycle_navigation", "cycle_length": 6}).vocabulary == 10


def test_first_permutation_acts_first_and_token_1_is_the_identity():
    task = lab.build("task", "permutation_composition")
    assert task.alphabet == ("_", "012", "021", "102", "120", "201", "210")
    rotation, swap = task.group_elements.index((1, 2, 0)), task.group_elements.index((1, 0, 2))
    # 0 -> 1 -> 0, 1 -> 2 -> 2, 2 -> 0 -> 1
    assert task.group_elements[task.product_table[swap, rotation]] == (0, 2, 1)


def test_groups_have_the_right_number_of_elements():
    orders = {"S3": 6, "S4": 24, "S5": 120, "A5": 60}
    for group, order in orders.items():
        task = lab.build("task", {"name": "permutation_composition", "group": group})
        assert task.vocabulary == 1 + order and task.chance_level == 100 / order
        assert sorted(task.product_table[0].tolist()) == sorted(task.product_table[:, 0].tolist()) == list(range(order))


@pytest.mark.parametrize("power", [0.01, 0.5, 1.0])
def test_recall_queries_each_key_once_in_slots_sampled_by_weight(power):
    labels = lab.build("task", {"name": "associative_recall", "power": power}).get_examples("test", 0, 0, 8192).labels
    assert ((labels >= 0).sum(1) == 8).all() and (labels[:, :16] == -1).all() and (labels[:, 17::2] == -1).all()
    weight = np.arange(1, 25) ** (power - 1)
    rng = np.random.default_rng(0)
    chosen = [rng.choice(24, 8, replace=False, p=weight / weight.sum()) for _ in range(8192)]
    share = (labels >= 0).numpy().mean(0)[16::2]
    assert np.abs(share - np.bincount(np.concatenate(chosen)) / 8192).max() < 0.04


def test_examples_of_the_paper_tasks_never_change():
    """If these strings change, old and new results are no longer comparable."""
    formatted = {}
    for name in ("parity", "modular_arithmetic"):
        task = lab.build("task", {"name": name, "train_length": [3, 15]})
        batch = task.get_examples("train", 0, 0, 3)
        formatted[name] = [task.format_example(batch, row) for row in range(3)]
    assert formatted == {
        "parity": ["0 1 0 0 0 1 1 0 1 0 [0]", "1 1 1 1 1 1 0 0 [0]", "1 0 1 0 0 1 1 [0]"],
        "modular_arithmetic": ["4 - 4 - 0 + 2 * 3 + 4 = [0]", "2 - 3 - 1 - 1 + 4 * 1 + 4 = [0]", "2 + 4 = [1]"],
    }


def test_with_brackets_always_predicting_0_is_right_in_30_percent():
    task = lab.build("task", {"name": "modular_arithmetic", "brackets": True})
    labels = task.get_examples("valid", 0, 0, 8192).labels
    zeros = 100 * float((labels[labels >= 0] == 5).double().mean())
    assert abs(task.chance_by_metric["accuracy"] - zeros) < 5 and 27 < zeros < 33
    assert task.chance_by_metric["normalized_accuracy"] == (task.chance_by_metric["accuracy"] - 20) / 0.8
    assert lab.build("task", "modular_arithmetic").chance_by_metric == {"accuracy": 20.0, "normalized_accuracy": 0.0}
