"""Hyperparameter importance where the relevant parameter is known."""

import pytest

from hqlt_lab.report.stats.importance import ALL_ARMS, compute_importance

TUNE = "seeds: 2\ntune: {train.lr: [0.1, 0.01, 0.001], train.weight_decay: [0.0, 0.1]}\n"


@pytest.fixture
def importance_of(make_experiment, make_record):
    """Return a function that computes the importance of a grid of cells with the given scores."""

    def make(score, extra=TUNE, points=None):
        experiment = make_experiment(extra)
        points = points or [(rate, decay) for rate in (0.1, 0.01, 0.001) for decay in (0.0, 0.1)]
        records = [
            make_record(arm, seed, valid=score(arm, rate, decay) + 0.01 * seed, test=0.0,
                 point={"train.lr": rate, "train.weight_decay": decay})
            for arm in ("delta", "linear", "retention")
            for rate, decay in points
            for seed in range(2)
        ]  # fmt: skip
        return compute_importance(experiment, records)

    return make


def test_the_only_relevant_parameter_explains_nearly_all_variance(importance_of):
    importance = importance_of(lambda arm, rate, decay: {0.1: 0.0, 0.01: 50.0, 0.001: 90.0}[rate])
    assert list(importance) == [ALL_ARMS, "delta", "linear", "retention"]
    assert importance["delta"]["train.lr"] > 0.95
    assert next(iter(importance["delta"])) == "train.lr", "the largest first"
    assert sum(importance["delta"].values()) <= 1.0 + 1e-9


def test_over_all_arms_the_arm_is_a_parameter(importance_of):
    importance = importance_of(lambda arm, rate, decay: {"delta": 0.0, "linear": 50.0, "retention": 90.0}[arm])
    assert importance[ALL_ARMS]["arm"] > 0.95
    assert set(importance[ALL_ARMS]) == {"arm", "train.lr", "train.weight_decay"}


def test_a_searched_range_is_treated_as_numeric(importance_of):
    points = [(10**-power, 0.1 * (power > 2)) for power in (1.0, 1.7, 2.2, 2.9, 3.3, 4.0)]
    extra = (
        "seeds: 2\ntune: {train.lr: {low: 1.0e-4, high: 1.0e-1, log: true}, train.weight_decay: {low: 0, high: 1.0}}\n"
    )
    importance = importance_of(lambda arm, rate, decay: 100 * rate, extra, points)
    assert importance["linear"]["train.lr"] > 0.5


def test_without_variation_there_is_no_importance(make_experiment, make_record):
    experiment = make_experiment("seeds: 2\n")
    assert compute_importance(experiment, []) == {}
    equal_records = [make_record(arm, seed, 5.0) for arm in ("delta", "linear") for seed in range(3)]
    assert compute_importance(experiment, equal_records) == {}
