"""What a cell will cost follows from what its model computes."""

from dataclasses import replace

import pytest

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.settings import TrainConfig
from hqlt_lab.model.config import OpsConfig
from hqlt_lab.train import cost as cost_module
from hqlt_lab.train.cost import LAYER, STEP, cost, sizes_of
from hqlt_lab.train.measured import Probe, run_steps

TASK = {"name": "parity", "train_length": [3, 8], "test_length": [8, 12], "eval_size": 16}
MODEL = {"width": 8, "heads": 2, "layers": 1, "mixer": "kv_only", "timing": {"name": "synchronous", "window": None}}


@pytest.fixture
def cell():
    return Cell(task=TASK, model=MODEL, train=TrainConfig(steps=5, batch_size=4, valid_every=2))


def test_time_is_estimated_from_the_flops_of_steps_and_evaluations(cell, monkeypatch):
    monkeypatch.setattr(cost_module, "speed", lambda: 1000.0)
    monkeypatch.setattr(cost_module, "pause", lambda: 0.0)
    found = {name: sizes.total for name, sizes in sizes_of(cell, "train", "short", "valid", "test").items()}
    looks = 16 * 3 * (found["short"].forward + found["valid"].forward) + 16 * found["test"].forward
    estimated = cost(cell, measure=False)
    assert estimated.step == pytest.approx(4 * found["train"].training / 1000)
    assert estimated.seconds == pytest.approx(5 * estimated.step + looks / 1000)


@pytest.fixture
def walking(cell, monkeypatch):
    """Three layers step by step, where products cost nothing and a small operation 10 ms."""
    monkeypatch.setattr(cost_module, "speed", lambda: 1e30)
    monkeypatch.setattr(cost_module, "pause", lambda: 0.01)
    return cell.with_model(mixer="sum", update_rule="bounded_delta", layers=3)


def test_a_rule_that_goes_step_by_step_takes_its_time(walking):
    found = cost(walking, measure=False)
    learned, looked = (0.01 * (3 * tokens * STEP + 3 * LAYER) for tokens in (7, 11))  # of a row, there
    assert found.step == pytest.approx(3 * learned)
    # one row of the validation takes a 16th of what all take; other rows as much more as they have FLOPs
    sizes = {name: one.total.forward for name, one in sizes_of(walking, "short", "valid", "test").items()}
    rows = 3 * (1 + sizes["short"] / sizes["valid"]) + sizes["test"] / sizes["valid"]
    assert found.seconds == pytest.approx(5 * found.step + rows * looked)
    plain = cost(walking.with_model(update_rule="delta"), measure=False)
    assert plain.step == pytest.approx(3 * 0.01 * 3 * LAYER)
    pieces = replace(walking, train=replace(walking.train, accumulate=4))
    assert cost(pieces, measure=False).step == pytest.approx(4 * found.step)


def test_steps_in_turn_are_those_of_layers_that_have_no_parallel_form(cell, walking):
    def steps(cell):
        return sizes_of(cell, "train")["train"].in_turn

    assert steps(walking) == 3 * 7 and steps(cell.with_model(mixer="sum")) == 0
    assert steps(walking.with_model(mixer=["sum", "kv_only", "kv_only"])) == 7
    by_hand = replace(cell.with_model(mixer="sum"), ops=OpsConfig(scan="recurrent"))
    assert steps(by_hand) == 7
    assert steps(by_hand.with_model(update_rule={"name": "delta_product", "steps": 4})) == 4 * 7


def test_a_probe_tells_steps_from_looks(cell, monkeypatch):
    """Small models learn slowly for their FLOPs, and are looked at in large batches."""
    found = {name: sizes.total for name, sizes in sizes_of(cell, "train", "short", "valid", "test").items()}
    monkeypatch.setattr(cost_module, "measured", lambda cell: Probe(0.5, 0.01, 7))
    looks = 16 * 3 * (found["short"].forward + found["valid"].forward) + 16 * found["test"].forward
    probed = cost(cell, measure=True)
    assert probed.seconds == pytest.approx(5 * 0.5 + 0.01 * looks / found["valid"].forward) and probed.memory == 7
    here = run_steps(cell)
    assert here.step > 0 and here.row > 0 and here.memory >= 0


def test_a_longer_text_costs_softmax_more_per_token(cell):
    learned, tested = (sizes_of(cell, split)[split] for split in ("train", "test"))
    assert tested["softmax"].forward / tested.length > learned["softmax"].forward / learned.length
    assert tested["mlp"].forward / tested.length == learned["mlp"].forward / learned.length
