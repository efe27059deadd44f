"""Scores sum over batches, and become percent of the answers that were due."""

import re
from collections import Counter

import pytest
import torch

import hqlt_lab as lab


def logits_for(task, batch, right):
    """The right answer in the rows of `right`, padding in all others."""
    answers = torch.where(right[:, None] & (batch.labels >= 0), batch.labels, 0)
    return torch.nn.functional.one_hot(answers, task.vocabulary).float()


def summed(task, logits, batch):
    """The counts of all examples together."""
    return {key: int(value.sum()) for key, value in task.score(logits, batch).items()}


def test_knowing_is_100_and_parts_add_up_to_the_whole(task):
    batch = task.examples("test", 0, 0, 60)
    right = torch.arange(60) < 45
    whole = summed(task, logits_for(task, batch, right), batch)
    parts = Counter()
    for rows in (slice(0, 20), slice(20, 60)):
        part = type(batch)(*(field[rows] for field in batch))
        parts.update(summed(task, logits_for(task, part, right[rows]), part))
    assert whole == {key: parts[key] for key in whole}
    everything = task.metrics(summed(task, logits_for(task, batch, right | True), batch))
    assert set(everything.values()) == {100.0}


def test_score_is_0_where_nothing_is_known(task):
    batch = task.examples("test", 0, 0, 20)
    metrics = task.metrics(summed(task, logits_for(task, batch, torch.zeros(20, dtype=torch.bool)), batch))
    assert metrics["accuracy"] == 0 and metrics["normalised_accuracy"] < 0


def test_buckets_share_out_what_was_scored(task):
    for split in ("short", "valid"):
        batch = task.examples(split, 0, 0, 100)
        totals = summed(task, logits_for(task, batch, torch.ones(100, dtype=torch.bool)), batch)
        assert sum(value for key, value in totals.items() if key.startswith("scored/")) == totals["scored"]
        assert totals["scored"] == (batch.labels >= 0).sum()


def test_names_are_the_same_for_every_batch_and_mlflow_takes_them(task):
    names = []
    for split in ("train", "test"):
        batch = task.examples(split, 0, 0, 4)
        names.append(list(task.score(torch.zeros(*batch.tokens.shape, task.vocabulary), batch)))
        metrics = task.metrics(summed(task, torch.zeros(*batch.tokens.shape, task.vocabulary), batch))
        assert all(re.fullmatch(r"[a-z0-9_./-]+", key) for key in metrics)
    assert names[0] == names[1]


def test_guessing_is_0_when_normalised():
    task = lab.build("task", "parity")
    metrics = task.metrics({"correct": 50, "scored": 100})
    assert metrics == {"accuracy": 50.0, "normalised_accuracy": 0.0}
    assert lab.build("task", "modular_arithmetic").metrics({"correct": 60, "scored": 100}) == {
        "accuracy": 60.0,
        "normalised_accuracy": pytest.approx(50.0),
    }


def test_lengths_double_from_the_shortest_test_size_on():
    task = lab.build("task", "parity")
    batch = task.examples("test", 0, 0, 8192)
    right = batch.lengths < 80
    metrics = task.metrics(summed(task, logits_for(task, batch, right), batch))
    assert {key: value for key, value in metrics.items() if "/" in key} == {
        "accuracy/length_40_79": 100.0,
        "accuracy/length_80_159": 0.0,
        "accuracy/length_160_256": 0.0,
    }
    short = task.examples("short", 0, 0, 8192)
    metrics = task.metrics(summed(task, logits_for(task, short, short.lengths > 0), short))
    assert "accuracy/length_3_39" in metrics


def test_a_single_size_is_one_bucket():
    task = lab.build("task", "associative_recall")
    assert set(task.metrics({"correct": 1, "scored": 1, "correct/length_64": 1, "scored/length_64": 1})) == {
        "accuracy",
        "accuracy/length_64",
        "normalised_accuracy",
    }
    batch = task.examples("test", 0, 0, 4)
    assert "scored/length_64" in task.score(torch.zeros(4, 64, task.vocabulary), batch)


def test_nothing_scored_is_no_metric():
    assert lab.build("task", "parity").metrics({"correct": 0, "scored": 0}) == {}


def test_counts_are_of_single_examples(task):
    batch = task.examples("test", 0, 0, 12)
    right = torch.arange(12) % 3 == 0
    counts = task.score(logits_for(task, batch, right), batch)
    due = (batch.labels >= 0).sum(1)
    assert all(count.shape == (12,) for count in counts.values())
    assert counts["scored"].equal(due) and counts["correct"].equal(due * right)
