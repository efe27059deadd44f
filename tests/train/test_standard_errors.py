"""Standard errors over test examples: how much a metric would vary with another sample of examples."""

import math

import numpy as np
import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.train.scoring import MetricSums, outputs_and_losses, score_model
from tests.train.conftest import TASK, tiny_cell

COUNT_NAMES = ("correct", "scored", "loss")


@pytest.fixture
def score_and_counts():
    """The score of an untrained model on rows of different lengths, and its counts per example."""
    task, model = lab.build("task", TASK | {"eval_size": 300}), lab.build_model(**tiny_cell().model, vocabulary=3)
    batch = task.get_examples("test", 0, 0, 300)
    with torch.no_grad():
        logits, losses = outputs_and_losses(model, task, batch.tokens, batch.labels)
    counts = task.score_examples(logits, batch) | {"loss": losses.sum(1)}
    return score_model(model, task, "test", 64), {name: count.double().numpy() for name, count in counts.items()}


def ratio_standard_error(correct, scored, unit):
    """Return sqrt(N / (N - 1) sum_i (correct_i - R scored_i)^2) / scored, in this unit."""
    ratio, examples = correct.sum() / scored.sum(), len(correct)
    return unit * math.sqrt(examples / (examples - 1) * ((correct - ratio * scored) ** 2).sum()) / scored.sum()


def test_the_error_is_that_of_a_ratio_with_examples_as_clusters(score_and_counts):
    score, counts = score_and_counts
    assert set(score.errors) == set(score.metrics)
    accuracy = ratio_standard_error(counts["correct"], counts["scored"], 100)
    assert score.errors["accuracy"] == pytest.approx(accuracy, rel=1e-6)
    assert score.errors["normalized_accuracy"] == pytest.approx(2 * accuracy, rel=1e-6)  # chance is 50 %
    assert score.errors["loss"] == pytest.approx(ratio_standard_error(counts["loss"], counts["scored"], 1), rel=1e-6)
    bucket = "length_6_11"
    bucket_error = ratio_standard_error(counts[f"correct/{bucket}"], counts[f"scored/{bucket}"], 100)
    assert score.errors[f"accuracy/{bucket}"] == pytest.approx(bucket_error, rel=1e-6)
    assert bucket_error > accuracy


def test_the_error_equals_the_spread_of_bootstrap_samples(score_and_counts):
    score, counts = score_and_counts
    rows = np.random.default_rng(0).integers(0, 300, (2000, 300))
    sums = {name: counts[name][rows].sum(1) for name in COUNT_NAMES}
    for metric, name, unit in (("accuracy", "correct", 100), ("loss", "loss", 1)):
        bootstrap_error = (unit * sums[name] / sums["scored"]).std()
        assert score.errors[metric] == pytest.approx(bootstrap_error, rel=0.1)


def test_answers_in_one_example_are_not_independent():
    rows = torch.tensor([[8.0, 8.0], [0.0, 8.0], [8.0, 8.0], [0.0, 8.0]], dtype=torch.float64)
    sums = MetricSums(("correct", "scored"), 4, rows.sum(0), rows.mT @ rows)
    expected = math.sqrt(0.25 / 3)  # of four coin flips; 32 independent answers would give a third of it
    errors = sums.standard_errors(lambda counts: {"share": counts["correct"] / counts["scored"]})
    assert errors == pytest.approx({"share": expected})


def test_any_function_of_the_sums_has_a_standard_error():
    rows = torch.tensor([[2.0, 1.0], [3.0, 2.0], [1.0, 3.0]], dtype=torch.float64)
    sums = MetricSums(("loss", "scored"), 3, rows.sum(0), rows.mT @ rows)
    errors = sums.standard_errors(
        lambda counts: {
            "loss": counts["loss"] / counts["scored"],
            "perplexity": math.exp(counts["loss"] / counts["scored"]),
        }
    )
    assert errors["perplexity"] == pytest.approx(math.e * errors["loss"])
    mean = sums.standard_errors(lambda counts: {"mean": counts["loss"] / 3})["mean"]
    assert mean == pytest.approx(rows[:, 0].std().item() / math.sqrt(3))


def test_a_constant_metric_has_error_zero_and_one_example_has_no_error():
    rows = torch.full((8192, 2), 256.0, dtype=torch.float64)
    sums = MetricSums(("correct", "scored"), 8192, rows.sum(0), rows.mT @ rows)
    share = lambda counts: {"share": 100 * counts["correct"] / counts["scored"]}  # noqa: E731
    assert sums.standard_errors(share) == pytest.approx({"share": 0}, abs=1e-5)
    assert MetricSums(("correct", "scored"), 1, rows[0], rows[:1].mT @ rows[:1]).standard_errors(share) == {}
