"""Finite training sets, their segments, and slices of the test."""

import numpy as np
import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.tasks._row_order import TrainingSet
from tests.issues import raises_issue

RECALL = {"name": "associative_recall", "keys": 16, "values": 16, "pairs": 2, "train_length": [16, 16]}
SEGMENTS = [{"rows": 10, "pairs": 2}, {"rows": 7, "pairs": 4, "train_length": [32, 32]}]
SLICES = [{"pairs": 2, "test_length": [16, 16]}, {"pairs": 4, "test_length": [32, 32]}, {"pairs": 3}]
MIXED = RECALL | {"segments": SEGMENTS, "test_slices": SLICES, "eval_size": 11, "test_length": [24, 24]}


def rows_of(batch):
    return [tuple(row[row > 0].tolist()) for row in batch.tokens]


def read_epoch(task, batch_size, epoch=0, seed=0):
    steps = task.steps_per_epoch(batch_size)
    return [task.get_train_batch(seed, epoch * steps + step, batch_size) for step in range(steps)]


def test_every_epoch_has_every_row_once():
    for order in ("fixed", "shuffled"):
        task = lab.build("task", RECALL | {"rows": 10, "order": order})
        expected = sorted(rows_of(task.get_examples("train", 0, 0, 10)))
        assert len(set(expected)) == 10
        for epoch in range(3):
            batches = read_epoch(task, 4, epoch)
            assert [len(batch.tokens) for batch in batches] == [4, 4, 2]
            assert sorted(row for batch in batches for row in rows_of(batch)) == expected


def test_only_a_shuffled_set_changes_its_order_between_epochs():
    fixed, shuffled = (lab.build("task", RECALL | {"rows": 50, "order": order}) for order in ("fixed", "shuffled"))
    first, second = ([row for batch in read_epoch(fixed, 8, epoch) for row in rows_of(batch)] for epoch in (0, 1))
    assert first == second == rows_of(fixed.get_examples("train", 0, 0, 50))
    orders = [[row for batch in read_epoch(shuffled, 8, epoch) for row in rows_of(batch)] for epoch in (0, 1)]
    assert orders[0] != orders[1] and orders[0] != first


def test_a_batch_depends_only_on_the_seed_and_the_step():
    spec = MIXED | {"order": "shuffled"}
    one, other = lab.build("task", spec), lab.build("task", spec)
    for _ in read_epoch(other, 4):  # reads other steps first
        pass
    for step in (5, 0, 9):
        batches = [task.get_train_batch(3, step, 4) for task in (one, other)]
        assert all(torch.equal(a, b) for a, b in zip(*batches, strict=True))
        assert not torch.equal(batches[0].labels, one.get_train_batch(4, step, 4).labels)


def test_the_processes_of_a_step_share_its_rows():
    task = lab.build("task", RECALL | {"rows": 10})
    for step in range(3):
        whole = task.get_train_batch(0, step, 4)
        parts = [task.get_train_batch(0, step, 4, rank, 2) for rank in range(2)]
        assert torch.equal(torch.cat([part.tokens for part in parts]), whole.tokens)


def test_segments_follow_one_another_with_their_own_options():
    task = lab.build("task", MIXED)
    batches = read_epoch(task, 4)
    assert [tuple(batch.tokens.shape) for batch in batches] == [(4, 16), (4, 16), (2, 16), (4, 32), (3, 32)]
    assert [int((batch.labels >= 0).sum()) for batch in batches] == [8, 8, 4, 16, 12]
    assert len({row for batch in batches for row in rows_of(batch)}) == 17
    whole = task.get_examples("train", 0, 0, 17)
    assert whole.tokens.shape == (17, 32) and rows_of(whole) == [row for batch in batches for row in rows_of(batch)]


def test_shuffled_segments_mix_their_batches():
    task = lab.build("task", MIXED | {"order": "shuffled"})
    widths = [[batch.tokens.shape[1] for batch in read_epoch(task, 2, epoch)] for epoch in range(8)]
    assert all(sorted(order) == sorted(widths[0]) for order in widths) and len({tuple(order) for order in widths}) > 1


def test_a_segment_does_not_begin_with_the_rows_of_another():
    same = [{"rows": 5, "pairs": 2}, {"rows": 5, "pairs": 2}]
    task = lab.build("task", RECALL | {"segments": same})
    assert len({row for batch in read_epoch(task, 5) for row in rows_of(batch)}) == 10


def test_batches_of_a_training_set_are_counted_with_their_sizes():
    training_set = TrainingSet((10, 7, 8), "fixed", "stream")
    assert training_set.steps_per_epoch(4) == 3 + 2 + 2
    assert training_set.batch_sizes(4) == [2, 3, 4] and training_set.batch_sizes(100) == [7, 8, 10]
    segment, numbers = training_set.select_rows(7 + 4, 4)
    assert segment == 1 and np.array_equal(numbers, [4, 5, 6])


def test_each_shuffled_segment_has_an_order_of_its_own():
    training_set = TrainingSet((50, 50), "shuffled", "stream")
    orders = dict(training_set.select_rows(step, 50) for step in range(2))
    assert orders.keys() == {0, 1} and not np.array_equal(orders[0], orders[1])


def test_slices_divide_valid_and_test():
    task = lab.build("task", MIXED)
    assert [tuple(part) for part in task.slices("test")] == [
        ("pairs_2_length_16", 0, 3), ("pairs_4_length_32", 3, 4), ("pairs_3", 7, 4),
    ]  # fmt: skip
    assert not task.slices("train") and not task.slices("short")
    batch = task.get_examples("test", 0, 0, 11)
    assert batch.lengths.tolist() == [16] * 3 + [32] * 4 + [24] * 4
    assert (batch.labels >= 0).sum(1).tolist() == [2] * 3 + [4] * 4 + [3] * 4
    assert task.length_ranges == {"train": (16, 32), "short": (16, 32), "valid": (16, 32), "test": (16, 32)}


def test_a_part_is_checked_with_the_sizes_of_its_own_splits():
    """A segment with more pairs needs longer training rows, and no longer test rows."""
    segment = {"rows": 5, "pairs": 8, "train_length": [32, 32]}
    task = lab.build("task", RECALL | {"segments": [segment], "test_slices": [{"pairs": 6, "test_length": [24, 24]}]})
    assert task.length_ranges == {"train": (32, 32), "short": (32, 32), "valid": (24, 24), "test": (24, 24)}


STAGES = [{"steps": 3, "pairs": 2}, {"steps": 2, "pairs": 3}, {"pairs": 4, "train_length": [24, 24]}]


def test_stages_follow_each_other_after_their_steps():
    task = lab.build("task", RECALL | {"stages": STAGES})
    batches = [task.get_train_batch(7, step, 6) for step in range(8)]
    labels = [int((batch.labels >= 0).sum(1).max()) for batch in batches]
    assert labels == [2] * 3 + [3] * 2 + [4] * 3
    assert [batch.tokens.shape[1] for batch in batches] == [16] * 5 + [24] * 3
    rows = [row for batch in batches for row in rows_of(batch)]
    assert len(set(rows)) == len(rows) == 8 * 6
    for step in (0, 4, 7):
        halves = [task.get_train_batch(7, step, 6, rank, 2) for rank in (0, 1)]
        assert torch.equal(torch.cat([half.tokens for half in halves]), batches[step].tokens)
    assert task.length_ranges["train"] == task.length_ranges["short"] == (16, 24)


def test_a_stage_changes_neither_valid_nor_test():
    plain, staged = lab.build("task", RECALL), lab.build("task", RECALL | {"stages": STAGES})
    for split in ("valid", "test"):
        assert torch.equal(plain.get_examples(split, 0, 0, 9).tokens, staged.get_examples(split, 0, 0, 9).tokens)


@pytest.mark.parametrize("name", ["state_based_recall", "copying", "ngram_lookup", "associative_recall"])
def test_slices_of_the_test_do_not_change_the_sizes_of_training(name):
    task = lab.build("task", name)
    low, high = task.test_length
    sliced = lab.build("task", {"name": name, "test_slices": [{"test_length": [low, high]}]})
    assert sliced.length_ranges == task.length_ranges
    train = [one.generate_arrays("train", 0, 0, 20) for one in (task, sliced)]
    assert all(np.array_equal(a, b) for a, b in zip(*train, strict=True))


def test_shortcuts_are_those_of_each_slice():
    slices = [{"pairs": 4}, {"pairs": 8, "test_length": [64, 64]}]
    task = lab.build("task", {"name": "forgetting_recall", "updates": 2, "test_slices": slices})
    shortcut = "the first value of each key"
    assert task.shortcut_scores == {
        "accuracy/pairs_4": {shortcut: 50.0},
        "accuracy/pairs_8_length_64": {shortcut: 75.0},
    }


def test_splits_of_segments_and_slices_have_different_rows():
    task = lab.build("task", MIXED | {"eval_size": 30})
    rows = [row for split in ("train", "short", "valid", "test") for row in rows_of(task.get_examples(split, 0, 0, 17))]
    assert len(set(rows)) == len(rows) == 4 * 17


def test_training_on_all_next_tokens_changes_no_scored_label():
    scored, all_next = (lab.build("task", RECALL | {"targets": targets}) for targets in ("scored", "all_next"))
    train, every = (task.get_examples("train", 0, 0, 20) for task in (scored, all_next))
    labeled = train.labels >= 0
    assert torch.equal(train.tokens, every.tokens) and torch.equal(every.labels[labeled], train.labels[labeled])
    unlabeled = ~labeled[:, :-1]
    assert torch.equal(every.labels[:, :-1][unlabeled], train.tokens[:, 1:][unlabeled])
    for split in ("short", "valid", "test"):
        assert torch.equal(scored.get_examples(split, 0, 0, 9).labels, all_next.get_examples(split, 0, 0, 9).labels)


def test_next_tokens_behind_the_end_of_a_row_are_no_targets():
    task = lab.build("task", RECALL | {"targets": "all_next", "train_length": [16, 30]})
    batch = task.get_examples("train", 0, 0, 50)
    assert batch.lengths.unique().numel() > 5
    for labels, length in zip(batch.labels, batch.lengths.tolist(), strict=True):
        assert (labels[: length - 1] > 0).all() and (labels[length:] == -1).all()


@pytest.mark.parametrize(
    ("options", "path", "code"),
    [
        ({"rows": 0}, "rows", "below_minimum"),
        ({"rows": 4, "segments": SEGMENTS}, "rows", "rows_and_segments"),
        ({"segments": []}, "segments", "number_of_parts"),
        ({"rows": 4, "stages": STAGES}, "stages", "stages_of_finite_set"),
        ({"stages": [{"pairs": 2}, {"pairs": 1}]}, "stages[0].steps", "stage_without_steps"),
        ({"stages": [{"steps": 2}, {"steps": 3, "pairs": 1}]}, "stages[1].steps", "steps_of_last_stage"),
        ({"stages": [{"rows": 2}]}, "stages[0].rows", "unknown_part_option"),
        ({"segments": [{"pairs": 2}]}, "segments[0].rows", "segment_without_rows"),
        ({"segments": [{"rows": 1, "pears": 2}]}, "segments[0].pears", "unknown_part_option"),
        ({"segments": [{"rows": 1, "pairs": "two"}]}, "segments[0].pairs", "part_option_of_wrong_type"),
        ({"segments": [{"rows": 1, "pairs": 9}]}, "segments[0].train_length", "size_too_small"),
        ({"segments": [{"rows": 1, "keys": 17}]}, "segments[0]", "part_with_other_tokens"),
        ({"test_slices": [{"rows": 3, "pairs": 2}]}, "test_slices[0].rows", "unknown_part_option"),
        ({"test_slices": [{"pairs": 2}, {"pairs": 2}]}, "test_slices[1]", "slice_without_name"),
    ],
    ids=str,
)  # fmt: skip
def test_an_invalid_part_is_an_error_that_names_it(options, path, code):
    with raises_issue(f"task.{path}", code):
        lab.build("task", RECALL | options)


def test_a_task_of_states_has_no_next_token_targets():
    with raises_issue("task.targets", "targets_of_state_task"):
        lab.build("task", {"name": "parity", "targets": "all_next"})
