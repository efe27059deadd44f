"""One training step: micro-batches, learning rate, clipping and weight decay."""

import math

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.experiment.run_settings import TrainConfig
from hqlt_lab.train.fit import fit, fit_in_process
from hqlt_lab.train.lightning_module import TrainingModule
from hqlt_lab.train.micro_batches import MicroBatches
from hqlt_lab.train.optim import lr_factor, parameter_groups
from hqlt_lab.train.trainer_state import TrainerState
from tests.issues import raises_issue
from tests.train.conftest import TASK, MetricsLog, last_weights, tiny_cell


def lr_curve(**settings):
    train = TrainConfig(**settings)
    return [lr_factor(train, step) for step in range(train.steps)]


def test_the_learning_rate_rises_linearly_to_its_peak_and_falls_along_a_cosine():
    assert lr_curve(steps=8, warmup=3, schedule="constant") == [0.25, 0.5, 0.75, 1, 1, 1, 1, 1]
    half = math.sqrt(0.5) / 2
    assert lr_curve(steps=4) == pytest.approx([1, 0.5 + half, 0.5, 0.5 - half])
    assert lr_curve(steps=6, warmup=2, lr_floor=0.1) == pytest.approx(
        [1 / 3, 2 / 3, 1, 0.55 + 0.9 * half, 0.55, 0.55 - 0.9 * half]
    )
    assert lr_curve(steps=5, lr_horizon=2, lr_floor=0.2) == pytest.approx([1, 0.6, 0.2, 0.2, 0.2])
    assert lr_curve(steps=3, warmup=5) == pytest.approx([1 / 6, 1 / 3, 0.5])


def test_the_logged_learning_rate_is_that_of_its_step(folder):
    log, cell = MetricsLog(), tiny_cell(warmup=4, lr=0.01)
    fit(cell, folder, log)
    rates = [metrics["train/lr"] for _, metrics in log if "train/lr" in metrics]
    assert rates == pytest.approx([0.01 * factor for factor in lr_curve(steps=12, warmup=4)])


def test_micro_batches_of_all_processes_contain_every_row_of_a_step():
    cell, task = tiny_cell(accumulate=2), lab.build("task", tiny_cell().task)
    batch = task.get_examples("train", 0, 5 * 12, 12)
    ranks = [list(MicroBatches(task, cell, 0, rank, 3).split_step(5)) for rank in range(3)]
    assert torch.equal(torch.cat([micro_batch.tokens for rank in ranks for micro_batch in rank]), batch.tokens)
    assert torch.equal(torch.cat([micro_batch.labels for rank in ranks for micro_batch in rank]), batch.labels)
    assert sum(rank[0].num_labels for rank in ranks) == (batch.labels >= 0).sum()


def test_batches_depend_on_the_seed():
    task = lab.build("task", TASK)
    first, second = (next(iter(MicroBatches(task, tiny_cell(seed=seed), 0, 0, 1))).tokens for seed in (0, 1))
    assert first.shape != second.shape or not torch.equal(first, second)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_run_starts_from_the_initial_weights_of_its_seed(seed, folder):
    cell = tiny_cell(steps=1, lr=1e-30, weight_decay=0.0, seed=seed)
    fit(cell, folder)
    weights = last_weights(folder)
    start = {each: lab.build_model(each, **cell.model, vocabulary=3).state_dict() for each in (0, 1)}
    names = [name for name, value in start[0].items() if not torch.equal(value, start[1][name])]
    assert len(names) > 10
    for name in names:
        torch.testing.assert_close(weights[f"model.{name}"], start[seed][name])
        assert not torch.equal(weights[f"model.{name}"], start[1 - seed][name])


def test_dropout_depends_on_the_seed_and_the_step():
    cell, task = tiny_cell(), lab.build("task", TASK)
    model = lab.build_model(**cell.model, vocabulary=3, dropout=0.5).train()
    micro_batch = next(iter(MicroBatches(task, cell, 0, 0, 1)))
    losses = {}
    for seed, step in ((0, 0), (1, 0), (0, 1), (0, 0)):
        module = TrainingModule(model, task, tiny_cell(seed=seed), TrainerState())
        loss = module.micro_batch_loss(micro_batch._replace(step=step)).item()
        assert losses.setdefault((seed, step), loss) == loss
    assert len(set(losses.values())) == 3


def test_three_micro_batches_equal_one_batch(tmp_path):
    log_one, log_three = MetricsLog(), MetricsLog()
    one = fit(tiny_cell(precision="64"), tmp_path / "one", log_one)
    three = fit(tiny_cell(precision="64", accumulate=3), tmp_path / "three", log_three)
    torch.testing.assert_close(last_weights(tmp_path / "one"), last_weights(tmp_path / "three"))
    assert next(iter(last_weights(tmp_path / "one").values())).dtype == torch.float64
    points_one, points_three = log_one.timeless_points(), log_three.timeless_points()
    assert [point[:2] for point in points_one] == [point[:2] for point in points_three]
    assert [point[2] for point in points_one] == pytest.approx([point[2] for point in points_three])
    assert one.metrics == pytest.approx(three.metrics)


def test_a_batch_that_does_not_divide_is_refused(folder):
    with raises_issue("train.batch_size", "batch_not_divisible"):
        fit_in_process(tiny_cell(devices=5, accumulate=3), folder)


def test_clipping_changes_the_step_and_not_the_logged_norm(tmp_path):
    # Adam is invariant to the scale of the gradient; a large eps makes the scale matter
    norms, weights = {}, {}
    for clip in (None, 1e6, 1e-3):
        log = MetricsLog()
        fit(tiny_cell(steps=1, clip=clip, adam_eps=1.0), tmp_path / str(clip), log)
        norms[clip], weights[clip] = log[0][1]["train/gradient_norm"], last_weights(tmp_path / str(clip))
    assert norms[None] == norms[1e6] == norms[1e-3] > 1e-3
    torch.testing.assert_close(weights[None], weights[1e6])
    name = "model.head.weight"
    start = lab.build_model(**tiny_cell().model, vocabulary=3).head.weight * (1 - 1e-3 * 0.1)
    unclipped, clipped = ((weights[clip][name] - start).norm() for clip in (None, 1e-3))
    assert 0 < clipped < 0.5 * unclipped


def test_clipped_gradients_have_exactly_the_configured_norm(folder):
    """With a large eps and no momentum or decay, one Adam step is lr * gradient / eps."""
    cell = tiny_cell(steps=1, clip=1e-3, lr=1.0, betas=[0.0, 0.0], adam_eps=1e3, weight_decay=0.0, precision="64")
    fit(cell, folder)
    weights = last_weights(folder)
    start = lab.build_model(**cell.model, vocabulary=3).double().state_dict()
    step = torch.cat([(weights[f"model.{name}"] - start[name]).flatten() for name in start])
    assert step.norm().item() * 1e3 == pytest.approx(1e-3, rel=1e-3)


def test_vectors_decay_only_if_configured_and_decay_rates_never():
    model = lab.build_model(width=16, heads=2, layers=1, vocabulary=3, update_rule="gated_delta", bias=True)
    names = {id(parameter): name for name, parameter in model.named_parameters()}

    def names_without_decay(decay):
        groups = parameter_groups(model, TrainConfig(decay=decay, weight_decay=0.3))
        without_decay = [group for group in groups if group["weight_decay"] == 0]
        return {names[id(parameter)].split(".")[-1] for group in without_decay for parameter in group["params"]}

    assert names_without_decay("all") == {"log_rate", "fade_bias"}
    assert {"log_rate", "fade_bias", "bias"} < names_without_decay("matrices")
    with_decay = parameter_groups(model, TrainConfig(decay="matrices", weight_decay=0.3))[0]
    assert with_decay["weight_decay"] == 0.3 and all(parameter.ndim >= 2 for parameter in with_decay["params"])
    assert sum(len(group["params"]) for group in parameter_groups(model, TrainConfig())) == len(names)


def test_an_empty_parameter_group_is_left_out():
    model = lab.build_model(width=16, heads=2, layers=1, vocabulary=3)
    assert [group["weight_decay"] for group in parameter_groups(model, TrainConfig())] == [0.1]
