"""Statistics, shortcuts and metrics of word problems, state-based recall and tracked recall."""

from itertools import product

import numpy as np
import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.tasks._finite_groups import make_group
from hqlt_lab.tasks._shortcut_accuracy import expected_top_share

ROWS = 1000
# mean index of tokens and labels over 1,000 rows of 128 elements, from the published generator
MEANS = {
    ("S3", None): (2.498, 2.505),
    ("S4", None): (11.490, 11.488),
    ("A5", None): (29.475, 29.542),
    ("S5", None): (59.450, 59.522),
    ("S5", 2): (28.390, 58.875),
}


@pytest.mark.parametrize(("group", "max_moved"), MEANS)
def test_elements_and_products_have_the_means_of_the_published_generator(group, max_moved):
    spec = {"name": "word_problem", "group": group, "max_moved": max_moved, "test_length": [128, 128]}
    arrays = lab.build("task", spec).generate_arrays("test", 0, 0, ROWS)
    for indices, published in zip((arrays.tokens[:, 1:], arrays.labels[:, 1:]), MEANS[group, max_moved], strict=True):
        # both samples have an error; products of swaps alternate in sign, so rows and not tokens are independent
        error = 2**0.5 * max((indices - 1).mean(1).std() / ROWS**0.5, 1e-9)
        assert abs((indices - 1).mean() - published) < 4 * error


@pytest.mark.parametrize(("max_moved", "count"), [(2, 11), (3, 31), (4, 76), (None, 120)])
def test_inputs_that_move_few_things_are_those_of_the_paper(max_moved, count):
    task = lab.build("task", {"name": "word_problem", "group": "S5", "max_moved": max_moved})
    assert len(task.inputs) == count
    if max_moved == 2:
        assert task.inputs.tolist() == [0, 1, 2, 5, 6, 14, 21, 24, 54, 80, 105]


@pytest.mark.parametrize("name", ["S4", "A4", "Z7", "A4xZ5", "Z2xZ3xS3"])
def test_a_table_is_that_of_a_group(name):
    """Closed, associative, with element 0 as the identity and an inverse of each element."""
    products = make_group(name).products
    numbers = np.arange(len(products))
    assert np.array_equal(np.sort(products, 0), np.sort(products.T, 1).T)
    assert np.array_equal(products[0], numbers) and np.array_equal(products[:, 0], numbers)
    assert (np.sort(products, 1) == numbers).all()
    for a, b, c in np.random.default_rng(0).integers(0, len(products), (50, 3)):
        assert products[products[a, b], c] == products[a, products[b, c]]


# rows of the published generators: elements, and the product after each
LITERAL_ROWS = [
    ("S3", "5 4 2 1 3 2", "5 1 4 5 2 0"),
    ("S3", "4 1 2 3 5 3", "4 5 3 4 2 1"),
    ("A5", "50 45 25 15 30 24", "50 17 51 14 58 23"),
    ("A5", "16 45 37 15 54 58", "16 48 34 52 44 0"),
    ("Z60", "47 18 28 35 54 30", "47 5 33 8 2 32"),
    ("A4xZ5", "50 45 25 15 30 24", "50 40 50 25 35 29"),
    ("A4xZ5", "16 45 37 15 54 58", "16 36 53 28 12 35"),
]


@pytest.mark.parametrize(("group", "elements", "expected"), LITERAL_ROWS)
def test_products_are_those_of_published_rows(group, elements, expected):
    products = make_group(group).products
    state, *rest = map(int, elements.split())
    states = [state]
    for element in rest:
        states.append(int(products[states[-1], element]))
    assert states == [int(state) for state in expected.split()]


def test_the_newest_element_acts_first_or_last_as_the_option_says():
    for newest_acts in ("first", "last"):
        task = lab.build("task", {"name": "word_problem", "group": "S4", "newest_acts": newest_acts, "bos": False})
        arrays = task.generate_arrays("test", 0, 0, 20)
        products = task.elements.products
        tokens, labels = arrays.tokens - 1, arrays.labels - 1
        for t in range(1, 30):
            newest, before = tokens[:, t], labels[:, t - 1]
            expected = products[before, newest] if newest_acts == "first" else products[newest, before]
            assert np.array_equal(labels[:, t], expected)


def test_sequence_accuracy_counts_rows_without_a_mistake_up_to_a_length():
    task = lab.build("task", {"name": "word_problem", "train_length": [8, 8], "test_length": [16, 40], "eval_size": 50})
    batch = task.get_examples("test", 0, 0, 50)
    generator = torch.Generator().manual_seed(0)
    is_wrong = torch.rand(batch.labels.shape, generator=generator) < 0.04
    predictions = torch.where(is_wrong, batch.labels + 1, batch.labels)
    counts = task.score_predictions(predictions, batch)
    metrics = task.compute_metrics({name: float(count.sum()) for name, count in counts.items()})
    for end in (8, 16, 32, 1000):
        correct = 0
        for row in range(50):
            # the token in front of a row is not counted
            last = min(1 + int(batch.lengths[row]), 1 + end)
            correct += all(predictions[row, t] == batch.labels[row, t] for t in range(1, last))
        name = "sequence_accuracy" if end == 1000 else f"sequence_accuracy/up_to_{end}"
        assert metrics[name] == pytest.approx(2 * correct) and 0 < correct < 50
    # lengths from 8 to 15 occur in training only
    assert set(metrics) == set(task.metric_names) - {"accuracy/length_8_15"}


def test_the_token_in_front_of_a_row_is_a_label_in_training_only():
    task = lab.build("task", "word_problem")
    train, test = (task.get_examples(split, 0, 0, 10) for split in ("train", "test"))
    assert (train.labels[:, 0] == task.vocabulary - 1).all() and (train.tokens[:, 0] == task.vocabulary - 1).all()
    assert (test.labels[:, 0] == -1).all() and (test.labels[:, 1:5] >= 0).all()


@pytest.mark.parametrize(("draws", "values"), [(5, 2), (5, 4), (4, 3), (2, 5), (6, 2)])
def test_the_share_of_the_most_frequent_value_is_its_mean_over_all_sequences(draws, values):
    shares = [max(map(draw.count, draw)) / draws for draw in product(range(values), repeat=draws)]
    assert expected_top_share(draws, values) == pytest.approx(np.mean(shares))


def test_the_shortcuts_of_long_state_based_recall_score_as_in_the_literature():
    def shortcut_accuracies(**options):
        spec = {"name": "state_based_recall", "test_length": [64, 64], **options}
        return list(lab.build("task", spec).shortcut_scores["accuracy"].values())

    assert shortcut_accuracies(values=2) == pytest.approx([68.75, 60.0])
    for values, (top, first) in {4: (49.7, 40), 8: (38.7, 30), 16: (30.7, 25), 32: (25.8, 22.5)}.items():
        assert shortcut_accuracies(values=values) == pytest.approx([top, first], abs=0.15)
    assert shortcut_accuracies(values=2, test_length=[1, 1])[1] == pytest.approx(80)


@pytest.mark.parametrize("swaps", [1, 3, 16])
def test_shortcuts_of_state_based_recall_reach_their_declared_accuracy(swaps):
    spec = {"name": "state_based_recall", "items": 9, "values": 3, "test_length": [swaps, swaps]}
    task = lab.build("task", spec)
    arrays = task.generate_arrays("test", 0, 0, 4000)
    first_value, first_address = 10, 13
    top, first = np.zeros(4000), np.zeros(4000)
    for row in range(4000):
        tokens = arrays.tokens[row].tolist()
        label = int(arrays.labels[row].max())
        pointed = [tokens[tokens[11 + 2 * variable] - first_address] for variable in range(5)]
        counts = [pointed.count(value) for value in range(first_value, first_value + 3)]
        # one of the most frequent values at random
        top[row] = (counts[label - first_value] == max(counts)) / counts.count(max(counts))
        first[row] = pointed[tokens[int(arrays.lengths[row]) - 1] - 5] == label
    for observed, declared in zip((top, first), task.shortcut_scores["accuracy"].values(), strict=True):
        assert abs(100 * observed.mean() - declared) < 4 * 100 * observed.std() / 4000**0.5 + 1e-9


def test_rows_of_state_based_recall_have_the_published_size():
    for items, size in ((16, 62), (64, 206)):
        spec = {"name": "state_based_recall", "items": items, "test_length": [items, items], "check_share": 0.0}
        task = lab.build("task", spec)
        assert task.length_ranges["test"] == (size, size)
        labels = task.generate_arrays("test", 0, 0, ROWS).labels.max(1)
        assert abs((labels == 10).mean() - 0.5) < 4 * 0.5 / ROWS**0.5


def test_checks_occur_in_the_declared_share_of_training_rows_and_never_in_tests():
    task = lab.build("task", {"name": "state_based_recall", "train_length": [16, 16], "test_length": [16, 16]})
    train, test = (task.generate_arrays(split, 0, 0, ROWS) for split in ("train", "test"))
    num_checks = (train.tokens == 3).sum(1)
    assert not (test.tokens == 3).any() and ((train.labels >= 0).sum(1) == 1 + num_checks).all()
    shares = {count: (num_checks == count).mean() for count in (0, 1, 2, 4, 8, 16)}
    assert sum(shares.values()) == pytest.approx(1)
    for count, expected in {0: 0.2, 1: 0.16, 2: 0.16, 4: 0.16, 8: 0.16, 16: 0.16}.items():
        assert abs(shares[count] - expected) < 4 * (expected * (1 - expected) / ROWS) ** 0.5
    # the number of swaps is a power of 2, so the last check follows the last swap: check, variable, address, query
    checked = np.nonzero(num_checks)[0]
    assert (train.tokens[checked, train.lengths[checked] - 5] == 3).all()


def test_the_shortcut_of_tracked_recall_reaches_its_declared_accuracy():
    spec = {"name": "tracked_recall", "tags": 2, "values": 4, "queries": 1, "test_length": [16, 16]}
    task = lab.build("task", spec)
    arrays = task.generate_arrays("test", 0, 0, 4000)
    guessed = np.zeros(4000)
    for row in range(4000):
        tokens, position = arrays.tokens[row].tolist(), int(arrays.labels[row].argmax())
        stored = [tokens[i + 2] for i in range(0, task.table_tokens, 3) if tokens[i + 1] == tokens[position]]
        counts = [stored.count(value) for value in range(15, 19)]
        guessed[row] = (counts[arrays.labels[row, position] - 15] == max(counts)) / counts.count(max(counts))
    (declared,) = task.shortcut_scores["accuracy"].values()
    assert abs(100 * guessed.mean() - declared) < 4 * 100 * guessed.std() / 4000**0.5


def test_tags_of_tracked_recall_are_asked_after_any_update():
    task = lab.build("task", {"name": "tracked_recall", "queries": 1, "test_length": [3, 3]})
    places = task.generate_arrays("test", 0, 0, ROWS).labels.argmax(1) - task.table_tokens
    shares = [(places == updates).mean() for updates in (1, 2, 3)]
    assert sum(shares) == pytest.approx(1) and all(abs(share - 1 / 3) < 4 * (2 / 9 / ROWS) ** 0.5 for share in shares)


def test_rows_of_tracked_recall_have_the_published_size():
    task = lab.build("task", {"name": "tracked_recall", "tags": 4, "test_length": [32, 32]})
    assert task.sequence_length("test") == 108
    arrays = task.generate_arrays("test", 0, 0, ROWS)
    assert ((arrays.labels >= 0).sum(1) == 4).all()
    places = np.nonzero(arrays.labels >= 0)[1].reshape(ROWS, 4) - 72
    # queries stand behind uniform updates: their mean place is (1 + 32) / 2 + 1.5
    assert abs(places.mean() - 18.0) < 4 * places.mean(1).std() / ROWS**0.5


@pytest.mark.parametrize("name", ["word_problem", "state_based_recall", "tracked_recall"])
def test_splits_have_different_rows(name):
    task = lab.build("task", name)
    rows = [tuple(row[row > 0]) for split in task.splits for row in task.generate_arrays(split, 0, 0, 500).tokens]
    assert len(set(rows)) >= len(rows) - 2  # short word problems may coincide within a split
