"""What a cell will cost follows from what its model computes."""

import pytest

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.settings import TrainConfig
from hqlt_lab.train import cost as cost_module
from hqlt_lab.train.cost import Probe, cost, run_steps, sizes_of

TASK = {"name": "parity", "train_length": [3, 8], "test_length": [8, 12], "eval_size": 16}
MODEL = {"width": 8, "heads": 2, "layers": 1, "mixer": "kv_only", "timing": {"name": "synchronous", "window": None}}


@pytest.fixture
def cell():
    return Cell(task=TASK, model=MODEL, train=TrainConfig(steps=5, batch_size=4, valid_every=2))


def test_time_is_estimated_from_the_flops_of_steps_and_evaluations(cell, monkeypatch):
    monkeypatch.setattr(cost_module, "speed", lambda: 1000.0)
    found = {name: sizes.total for name, sizes in sizes_of(cell, "train", "short", "valid", "test").items()}
    looks = 16 * 3 * (found["short"].forward + found["valid"].forward) + 16 * found["test"].forward
    estimated = cost(cell, measure=False)
    assert estimated.step == pytest.approx(4 * found["train"].training / 1000)
    assert estimated.seconds == pytest.approx(5 * estimated.step + looks / 1000)


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
