"""What explains the variance, where it is known."""

import pytest

from hqlt_lab.report.importance import EVERYTHING, importance_of

TUNE = "seeds: 2\ntune: {train.lr: [0.1, 0.01, 0.001], train.weight_decay: [0.0, 0.1]}\n"


@pytest.fixture
def grid(asked, cell):
    def make(worth, more=TUNE, points=None):
        experiment = asked(more)
        points = points or [(rate, decay) for rate in (0.1, 0.01, 0.001) for decay in (0.0, 0.1)]
        records = [
            cell(arm, seed, valid=worth(arm, rate, decay) + 0.01 * seed, test=0.0,
                 point={"train.lr": rate, "train.weight_decay": decay})
            for arm in ("delta", "linear", "retention")
            for rate, decay in points
            for seed in range(2)
        ]  # fmt: skip
        return importance_of(experiment, records)

    return make


def test_what_alone_matters_explains_nearly_everything(grid):
    found = grid(lambda arm, rate, decay: {0.1: 0.0, 0.01: 50.0, 0.001: 90.0}[rate])
    assert list(found) == [EVERYTHING, "delta", "linear", "retention"]
    assert found["delta"]["train.lr"] > 0.95
    assert next(iter(found["delta"])) == "train.lr", "the largest first"
    assert sum(found["delta"].values()) <= 1.0 + 1e-9


def test_over_all_arms_the_arm_is_a_parameter_too(grid):
    found = grid(lambda arm, rate, decay: {"delta": 0.0, "linear": 50.0, "retention": 90.0}[arm])
    assert found[EVERYTHING]["arm"] > 0.95
    assert set(found[EVERYTHING]) == {"arm", "train.lr", "train.weight_decay"}


def test_a_searched_range_is_a_number(grid):
    points = [(10**-power, 0.1 * (power > 2)) for power in (1.0, 1.7, 2.2, 2.9, 3.3, 4.0)]
    more = (
        "seeds: 2\ntune: {train.lr: {low: 1.0e-4, high: 1.0e-1, log: true}, train.weight_decay: {low: 0, high: 1.0}}\n"
    )
    found = grid(lambda arm, rate, decay: 100 * rate, more, points)
    assert found["linear"]["train.lr"] > 0.5


def test_where_nothing_varies_nothing_is_said(asked, cell):
    experiment = asked("seeds: 2\n")
    assert importance_of(experiment, []) == {}
    same = [cell(arm, seed, 5.0) for arm in ("delta", "linear") for seed in range(3)]
    assert importance_of(experiment, same) == {}
