"""Counts can be summed over batches and become accuracies in percent of the scored tokens."""

import re
from collections import Counter

import pytest
import torch

import hqlt_lab as lab


def make_logits(task, batch, correct_rows):
    """Return logits that predict the label in the given rows and padding in all others."""
    predictions = torch.where(correct_rows[:, None] & (batch.labels >= 0), batch.labels, 0)
    return torch.nn.functional.one_hot(predictions, task.vocabulary).float()


def sum_counts(task, logits, batch):
    """Sum the counts over all examples."""
    return {key: value.sum().item() for key, value in task.score_examples(logits, batch).items()}


def test_perfect_accuracy_is_100_and_counts_of_batches_add_up(task):
    batch = task.get_examples("test", 0, 0, 60)
    correct_rows = torch.arange(60) < 45
    totals = sum_counts(task, make_logits(task, batch, correct_rows), batch)
    summed = Counter()
    for rows in (slice(0, 20), slice(20, 60)):
        part = type(batch)(*(field[rows] for field in batch))
        summed.update(sum_counts(task, make_logits(task, part, correct_rows[rows]), part))
    # the groups of macro accuracy are rows of one batch
    assert {key: totals[key] for key in totals if not key.startswith("macro_")} == pytest.approx(
        {key: count for key, count in summed.items() if not key.startswith("macro_")}
    )
    perfect = task.compute_metrics(sum_counts(task, make_logits(task, batch, correct_rows | True), batch))
    # the labels of random languages are samples, so that always predicting them is far from their distribution
    assert {value for name, value in perfect.items() if name != "l1_distance"} == {100.0}


def test_accuracy_is_0_if_every_prediction_is_wrong(task):
    batch = task.get_examples("test", 0, 0, 20)
    metrics = task.compute_metrics(sum_counts(task, make_logits(task, batch, torch.zeros(20, dtype=torch.bool)), batch))
    assert metrics["accuracy"] == 0 and metrics["normalized_accuracy"] < 0


def test_bucket_counts_add_up_to_all_scored_tokens(task):
    for split in ("short", "valid"):
        batch = task.get_examples(split, 0, 0, 100)
        totals = sum_counts(task, make_logits(task, batch, torch.ones(100, dtype=torch.bool)), batch)
        assert sum(value for key, value in totals.items() if key.startswith("scored/")) == totals["scored"]
        assert totals["scored"] == (batch.labels >= 0).sum()


def test_names_are_the_same_for_every_batch_and_valid_in_mlflow(task):
    names = []
    for split in ("train", "test"):
        batch = task.get_examples(split, 0, 0, 4)
        names.append(list(task.score_examples(torch.zeros(*batch.tokens.shape, task.vocabulary), batch)))
        metrics = task.compute_metrics(sum_counts(task, torch.zeros(*batch.tokens.shape, task.vocabulary), batch))
        assert all(re.fullmatch(r"[a-z0-9_./-]+", key) for key in metrics)
    assert names[0] == names[1]


def test_chance_level_normalizes_to_0():
    task = lab.build("task", "parity")
    metrics = task.compute_metrics({"correct": 50, "scored": 100})
    assert metrics == {"accuracy": 50.0, "normalized_accuracy": 0.0}
    assert lab.build("task", "modular_arithmetic").compute_metrics({"correct": 60, "scored": 100}) == {
        "accuracy": 60.0,
        "normalized_accuracy": pytest.approx(50.0),
    }


def test_length_buckets_double_from_the_shortest_test_size():
    task = lab.build("task", "parity")
    batch = task.get_examples("test", 0, 0, 8192)
    correct_rows = batch.lengths < 80
    metrics = task.compute_metrics(sum_counts(task, make_logits(task, batch, correct_rows), batch))
    assert {key: value for key, value in metrics.items() if "/" in key} == {
        "accuracy/length_40_79": 100.0,
        "accuracy/length_80_159": 0.0,
        "accuracy/length_160_256": 0.0,
    }
    short = task.get_examples("short", 0, 0, 8192)
    metrics = task.compute_metrics(sum_counts(task, make_logits(task, short, short.lengths > 0), short))
    assert "accuracy/length_3_39" in metrics


def test_a_single_size_is_one_bucket():
    task = lab.build("task", "associative_recall")
    assert set(task.compute_metrics({"correct": 1, "scored": 1, "correct/length_64": 1, "scored/length_64": 1})) == {
        "accuracy",
        "accuracy/length_64",
        "normalized_accuracy",
    }
    batch = task.get_examples("test", 0, 0, 4)
    assert "scored/length_64" in task.score_examples(torch.zeros(4, 64, task.vocabulary), batch)


def test_no_scored_tokens_give_no_metrics():
    assert lab.build("task", "parity").compute_metrics({"correct": 0, "scored": 0}) == {}


def test_counts_are_per_example(task):
    batch = task.get_examples("test", 0, 0, 12)
    correct_rows = torch.arange(12) % 3 == 0
    counts = task.score_examples(make_logits(task, batch, correct_rows), batch)
    num_labels = (batch.labels >= 0).sum(1)
    assert all(count.shape == (12,) for count in counts.values())
    assert counts["scored"].equal(num_labels) and counts["correct"].equal(num_labels * correct_rows)
