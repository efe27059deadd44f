"""The estimated cost of a cell follows from the operations of its model."""

from dataclasses import replace

import pytest

from hqlt_lab.experiment.cell import Cell
from hqlt_lab.experiment.run_settings import TrainConfig
from hqlt_lab.model.config import OpsConfig
from hqlt_lab.train.cost import estimate
from hqlt_lab.train.cost.benchmark import StepTiming, time_training_steps
from hqlt_lab.train.cost.estimate import OPS_PER_LAYER, OPS_PER_RULE_STEP, estimate_cell_cost, model_sizes_by_split

TASK = {"name": "parity", "train_length": [3, 8], "test_length": [8, 12], "eval_size": 16}
MODEL = {"width": 8, "heads": 2, "layers": 1, "mixer": "kv_only", "timing": {"name": "synchronous", "window": None}}


@pytest.fixture
def cell():
    return Cell(task=TASK, model=MODEL, train=TrainConfig(steps=5, batch_size=4, valid_every=2))


def test_time_is_estimated_from_the_flops_of_steps_and_evaluations(cell, monkeypatch):
    monkeypatch.setattr(estimate, "attainable_flops_per_second", lambda: 1000.0)
    monkeypatch.setattr(estimate, "op_launch_seconds", lambda: 0.0)
    totals = total_sizes(cell)
    eval_flops = 16 * 3 * (totals["short"].forward + totals["valid"].forward) + 16 * totals["test"].forward
    cost = estimate_cell_cost(cell, measure=False)
    assert cost.step_seconds == pytest.approx(4 * totals["train"].training / 1000)
    assert cost.total_seconds == pytest.approx(5 * cost.step_seconds + eval_flops / 1000)


def total_sizes(cell):
    splits = model_sizes_by_split(cell, "train", "short", "valid", "test")
    return {split: sizes.total for split, sizes in splits.items()}


@pytest.fixture
def sequential_cell(cell, monkeypatch):
    """Three layers without a parallel scan, where matrix products take no time and a small operation takes 10 ms."""
    monkeypatch.setattr(estimate, "attainable_flops_per_second", lambda: 1e30)
    monkeypatch.setattr(estimate, "op_launch_seconds", lambda: 0.01)
    return cell.replace_model_settings(mixer="sum", update_rule="tanh_delta", layers=3)


def test_sequential_steps_of_a_rule_add_launch_overhead(sequential_cell):
    cost = estimate_cell_cost(sequential_cell, measure=False)
    train_forward, valid_forward = (0.01 * (3 * tokens * OPS_PER_RULE_STEP + 3 * OPS_PER_LAYER) for tokens in (7, 11))
    assert cost.step_seconds == pytest.approx(3 * train_forward)
    # all 16 validation rows are one batch; batches of other splits scale with their FLOPs
    flops = {split: total.forward for split, total in total_sizes(sequential_cell).items()}
    batches = 3 * (1 + flops["short"] / flops["valid"]) + flops["test"] / flops["valid"]
    assert cost.total_seconds == pytest.approx(5 * cost.step_seconds + batches * valid_forward)
    parallel = estimate_cell_cost(sequential_cell.replace_model_settings(update_rule="delta"), measure=False)
    assert parallel.step_seconds == pytest.approx(3 * 0.01 * 3 * OPS_PER_LAYER)
    accumulated = replace(sequential_cell, train=replace(sequential_cell.train, accumulate=4))
    assert estimate_cell_cost(accumulated, measure=False).step_seconds == pytest.approx(4 * cost.step_seconds)


def test_only_layers_without_a_parallel_scan_have_sequential_steps(cell, sequential_cell):
    def sequential_steps(cell):
        return model_sizes_by_split(cell, "train")["train"].sequential_steps

    assert sequential_steps(sequential_cell) == 3 * 7
    assert sequential_steps(cell.replace_model_settings(mixer="sum")) == 0
    assert sequential_steps(sequential_cell.replace_model_settings(mixer=["sum", "kv_only", "kv_only"])) == 7
    recurrent = replace(cell.replace_model_settings(mixer="sum"), ops=OpsConfig(scan="recurrent"))
    assert sequential_steps(recurrent) == 7
    delta_product = recurrent.replace_model_settings(update_rule={"name": "delta_product", "steps": 4})
    assert sequential_steps(delta_product) == 4 * 7


def test_training_and_evaluation_are_measured_separately(cell, monkeypatch):
    """Small models train slowly for their FLOPs, but are evaluated in large batches."""
    totals = total_sizes(cell)
    monkeypatch.setattr(estimate, "measure_step_timing", lambda cell: StepTiming(0.5, 0.01, 7))
    eval_flops = 16 * 3 * (totals["short"].forward + totals["valid"].forward) + 16 * totals["test"].forward
    cost = estimate_cell_cost(cell, measure=True)
    assert cost.total_seconds == pytest.approx(5 * 0.5 + 0.01 * eval_flops / totals["valid"].forward)
    assert cost.peak_memory_bytes == 7
    timing = time_training_steps(cell)
    assert timing.step_seconds > 0 and timing.eval_row_seconds > 0 and timing.peak_memory_bytes >= 0


def test_softmax_flops_per_token_increase_with_the_length(cell):
    train, test = (model_sizes_by_split(cell, split)[split] for split in ("train", "test"))
    assert test["softmax"].forward / test.length > train["softmax"].forward / train.length
    assert test["mlp"].forward / test.length == train["mlp"].forward / train.length
