"""Statistics of associative recall agree with those of the generator of MQAR, within four standard errors.

The expected numbers are means over 1,000 rows of the published generator, with 4,095 keys and 4,096 values.
"""

import math

import numpy as np
import pytest

import hqlt_lab as lab

ROWS = 1000
# (length, pairs): mean and standard deviation of the slots of the queries, share of rows that query slot 0
SLOTS = {
    (64, 4): (7.104, 7.415, 0.716),
    (128, 8): (14.203, 14.904, 0.897),
    (256, 16): (28.175, 29.654, 0.983),
    (256, 64): (31.5, 18.473, 1.0),
    (512, 64): (61.385, 52.562, 1.0),
}
# share of rows with an unlabeled filler that is one of their keys
FILLERS = {(64, 4): 0.013, (256, 64): 0.37, (1024, 256): 1.0}


def published_rows(length, pairs, **options):
    spec = {"name": "associative_recall", "keys": 4095, "values": 4096, "pairs": pairs, **options}
    task = lab.build("task", spec | {"train_length": [length, length], "test_length": [length, length]})
    return task, task.generate_arrays("test", 0, 0, ROWS)


@pytest.mark.parametrize(("length", "pairs"), SLOTS)
def test_queries_are_spread_as_in_the_published_generator(length, pairs):
    _, arrays = published_rows(length, pairs)
    mean, deviation, first_share = SLOTS[length, pairs]
    columns = np.nonzero(arrays.labels >= 0)[1].reshape(ROWS, pairs)
    slots = (columns - 2 * pairs) // 2
    # both samples have an error, and the slots of a row are not independent of each other
    error = 2**0.5 * max(slots.mean(1).std(), 1e-9) / ROWS**0.5
    assert abs(slots.mean() - mean) <= 4 * error + 1e-3
    assert slots.std() == pytest.approx(deviation, rel=0.08)
    share = (slots == 0).any(1).mean()
    assert abs(share - first_share) <= 4 * (2 * first_share * (1 - first_share) / ROWS) ** 0.5 + 1e-3


@pytest.mark.parametrize(("length", "pairs"), FILLERS)
def test_random_fillers_hit_the_keys_of_their_row_as_often_as_published(length, pairs):
    _, arrays = published_rows(length, pairs, fill="random")
    keys = arrays.tokens[:, 0 : 2 * pairs : 2]
    is_filler = (np.arange(length) >= 2 * pairs) & (arrays.labels < 0)
    hits = np.array(
        [np.isin(row[mask], own).any() for row, mask, own in zip(arrays.tokens, is_filler, keys, strict=True)]
    )
    share = FILLERS[length, pairs]
    rounding = 0.005 if share > 0.1 else 0.0005
    assert abs(hits.mean() - share) <= 4 * (2 * share * (1 - share) / ROWS) ** 0.5 + rounding


FORGETTING = {"name": "forgetting_recall", "updates": 4, "keys": 4095, "values": 4096}
COMPOSITIONAL = {"name": "compositional_recall", "first_keys": 2729, "second_keys": 2730, "values": 2732}
# task and length: tokens in front of the slots, tokens of a slot, mean and deviation of the slots, share with slot 0
VARIANTS = [
    (FORGETTING | {"pairs": 4}, 64, 16, 2, (6.391, 6.466, 0.742)),
    (FORGETTING | {"pairs": 36}, 256, 80, 2, (29.876, 24.249, 1.0)),
    (COMPOSITIONAL | {"side": 2}, 64, 12, 3, (4.770, 4.631, 0.767)),
    (COMPOSITIONAL | {"side": 6}, 256, 108, 3, (20.586, 13.819, 1.0)),
]


@pytest.mark.parametrize(("spec", "length", "shown", "slot", "published"), VARIANTS)
def test_queries_of_the_variants_are_spread_as_in_the_published_generators(spec, length, shown, slot, published):
    task = lab.build("task", spec | {"train_length": [length, length], "test_length": [length, length]})
    arrays = task.generate_arrays("test", 0, 0, ROWS)
    columns = np.nonzero(arrays.labels >= 0)[1].reshape(ROWS, task.pairs)
    assert task.vocabulary == 8193 and ((columns - shown) % slot == slot - 2).all()
    slots, (mean, deviation, first_share) = (columns - shown) // slot, published
    assert abs(slots.mean() - mean) <= 4 * 2**0.5 * slots.mean(1).std() / ROWS**0.5 + 1e-3
    assert slots.std() == pytest.approx(deviation, rel=0.08)
    share = (slots == 0).any(1).mean()
    assert abs(share - first_share) <= 4 * (2 * first_share * (1 - first_share) / ROWS) ** 0.5 + 1e-3


def test_an_updated_key_never_has_its_first_value():
    task = lab.build("task", {"name": "forgetting_recall", "pairs": 4, "updates": 2, "values": 4})
    arrays = task.generate_arrays("test", 0, 0, ROWS)
    is_first = np.zeros((ROWS, 4), dtype=bool)
    for row in range(ROWS):
        first = dict(zip(arrays.tokens[row, 0:8:2], arrays.tokens[row, 1:8:2], strict=True))
        columns = np.nonzero(arrays.labels[row] >= 0)[0]
        is_first[row] = [first[arrays.tokens[row, column]] == arrays.labels[row, column] for column in columns]
    assert (is_first.sum(1) == 2).all()
    assert task.shortcut_scores["accuracy"] == {"the first value of each key": 50.0}


def test_one_of_two_keys_leaves_as_many_values_as_the_floor_says():
    task = lab.build("task", {"name": "compositional_recall", "side": 3})
    arrays = task.generate_arrays("test", 0, 0, 50)
    for row in range(50):
        first_keys, second_keys = arrays.tokens[row, 0:27:3], arrays.tokens[row, 1:27:3]
        assert (np.unique(first_keys, return_counts=True)[1] == 3).all()
        assert (np.unique(second_keys, return_counts=True)[1] == 3).all()
        assert len(set(zip(first_keys, second_keys, strict=True))) == 9
    assert task.shortcut_scores["accuracy"]["a value of one of the two keys"] == pytest.approx(100 / 3)


def test_random_fillers_change_neither_pairs_nor_queries():
    (task, blank), (_, random) = (published_rows(256, 16, fill=fill) for fill in ("blank", "random"))
    assert np.array_equal(blank.labels, random.labels)
    fixed = (blank.labels >= 0) | (np.arange(256) < 32)
    assert np.array_equal(blank.tokens[fixed], random.tokens[fixed])
    fillers = random.tokens[~fixed]
    assert fillers.min() == 1 and fillers.max() == task.vocabulary - 1
    share = (fillers >= 2 + 4095).mean()  # values
    assert abs(share - 4096 / 8192) < 4 * 0.5 / len(fillers) ** 0.5


# uniform inputs, too many for all of them to occur
MANY_INPUTS = [
    {"name": "associative_recall", "pairs": 3, "keys": 5, "values": 5, "power": 1, "train_length": [14, 14]},
    {
        "name": "compositional_recall",
        "side": 2,
        "first_keys": 3,
        "second_keys": 3,
        "values": 4,
        "power": 1,
        "train_length": [24, 24],
    },
]


@pytest.mark.parametrize("spec", MANY_INPUTS, ids=lambda spec: spec["name"])
def test_as_many_rows_repeat_as_the_number_of_inputs_says(spec):
    task, rows = lab.build("task", spec), 20_000
    num_inputs = task.count_inputs(spec["train_length"][0])
    is_missing = math.exp(-rows / num_inputs)  # probability that an input does not occur
    expected = num_inputs * (1 - is_missing)
    deviation = math.sqrt(num_inputs * is_missing * (1 - (1 + rows / num_inputs) * is_missing))
    observed = len(np.unique(task.generate_arrays("short", 0, 0, rows).tokens, axis=0))
    assert abs(observed - expected) <= 4 * deviation
