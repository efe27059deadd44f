"""The error over test examples: what another draw of examples would have moved a metric by."""

import math

import numpy as np
import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.train.score import answers, score
from hqlt_lab.train.sums import Sums
from tests.train.conftest import TASK, tiny

NAMES = ("correct", "scored", "loss")


@pytest.fixture
def told():
    """A model that has learned nothing on rows of different lengths: its score, and its counts example by example."""
    task, model = lab.build("task", TASK | {"eval_size": 300}), lab.build_model(**tiny().model, vocabulary=3)
    batch = task.examples("test", 0, 0, 300)
    with torch.no_grad():
        logits, losses = answers(model, task, batch.tokens, batch.labels)
    counts = task.score(logits, batch) | {"loss": losses.sum(1)}
    return score(model, task, "test", 64), {name: count.double().numpy() for name, count in counts.items()}


def by_hand(right, scored, unit):
    """sqrt(N / (N - 1) sum_i (right_i - R scored_i)^2) / scored"""
    ratio, examples = right.sum() / scored.sum(), len(right)
    return unit * math.sqrt(examples / (examples - 1) * ((right - ratio * scored) ** 2).sum()) / scored.sum()


def test_an_error_is_that_of_a_ratio_whose_clusters_are_the_examples(told):
    found, counts = told
    assert set(found.errors) == set(found.metrics)
    accuracy = by_hand(counts["correct"], counts["scored"], 100)
    assert found.errors["accuracy"] == pytest.approx(accuracy, rel=1e-6)
    assert found.errors["normalised_accuracy"] == pytest.approx(2 * accuracy, rel=1e-6)  # chance is 50 %
    assert found.errors["loss"] == pytest.approx(by_hand(counts["loss"], counts["scored"], 1), rel=1e-6)
    bucket = "length_6_11"
    inside = by_hand(counts[f"correct/{bucket}"], counts[f"scored/{bucket}"], 100)
    assert found.errors[f"accuracy/{bucket}"] == pytest.approx(inside, rel=1e-6) and inside > accuracy


def test_other_draws_of_the_examples_scatter_as_much(told):
    found, counts = told
    rows = np.random.default_rng(0).integers(0, 300, (2000, 300))
    drawn = {name: counts[name][rows].sum(1) for name in NAMES}
    for metric, name, unit in (("accuracy", "correct", 100), ("loss", "loss", 1)):
        scatter = (unit * drawn[name] / drawn["scored"]).std()
        assert found.errors[metric] == pytest.approx(scatter, rel=0.1)


def test_answers_of_one_example_count_as_one_draw():
    rows = torch.tensor([[8.0, 8.0], [0.0, 8.0], [8.0, 8.0], [0.0, 8.0]], dtype=torch.float64)
    sums = Sums(("correct", "scored"), 4, rows.sum(0), rows.mT @ rows)
    alone = math.sqrt(0.25 / 3)  # four coins; 32 independent answers would give a third of it
    assert sums.errors(lambda counts: {"share": counts["correct"] / counts["scored"]}) == pytest.approx(
        {"share": alone}
    )


def test_any_function_of_the_sums_has_an_error():
    rows = torch.tensor([[2.0, 1.0], [3.0, 2.0], [1.0, 3.0]], dtype=torch.float64)
    sums = Sums(("loss", "scored"), 3, rows.sum(0), rows.mT @ rows)
    errors = sums.errors(lambda c: {"loss": c["loss"] / c["scored"], "perplexity": math.exp(c["loss"] / c["scored"])})
    assert errors["perplexity"] == pytest.approx(math.e * errors["loss"])
    mean = sums.errors(lambda counts: {"mean": counts["loss"] / 3})["mean"]
    assert mean == pytest.approx(rows[:, 0].std().item() / math.sqrt(3))


def test_what_is_always_right_has_no_error_and_one_example_has_none_to_tell():
    rows = torch.full((8192, 2), 256.0, dtype=torch.float64)
    sums = Sums(("correct", "scored"), 8192, rows.sum(0), rows.mT @ rows)
    share = lambda counts: {"share": 100 * counts["correct"] / counts["scored"]}  # noqa: E731
    assert sums.errors(share) == pytest.approx({"share": 0}, abs=1e-5)
    assert Sums(("correct", "scored"), 1, rows[0], rows[:1].mT @ rows[:1]).errors(share) == {}
