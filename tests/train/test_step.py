"""One step: what is learned from, how fast, and what stops it."""

import math

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.errors import ConfigError
from hqlt_lab.experiment.settings import TrainConfig
from hqlt_lab.train.batches import Pieces
from hqlt_lab.train.fit import fit, fit_here
from hqlt_lab.train.optimiser import groups
from hqlt_lab.train.schedule import factor
from tests.train.conftest import Notebook, tiny, weights


def curve(**settings):
    train = TrainConfig(**settings)
    return [factor(train, step) for step in range(train.steps)]


def test_the_learning_rate_rises_to_the_peak_and_falls_along_a_cosine():
    assert curve(steps=8, warmup=3, schedule="constant") == [0.25, 0.5, 0.75, 1, 1, 1, 1, 1]
    half = math.sqrt(0.5) / 2
    assert curve(steps=4) == pytest.approx([1, 0.5 + half, 0.5, 0.5 - half])
    assert curve(steps=6, warmup=2, lr_floor=0.1) == pytest.approx(
        [1 / 3, 2 / 3, 1, 0.55 + 0.9 * half, 0.55, 0.55 - 0.9 * half]
    )
    assert curve(steps=5, lr_horizon=2, lr_floor=0.2) == pytest.approx([1, 0.6, 0.2, 0.2, 0.2])
    assert curve(steps=3, warmup=5) == pytest.approx([1 / 6, 1 / 3, 0.5])


def test_the_learning_rate_that_is_told_is_the_one_of_its_step(folder):
    notes, cell = Notebook(), tiny(warmup=4, lr=0.01)
    fit(cell, folder, notes)
    told = [metrics["train/lr"] for _, metrics in notes if "train/lr" in metrics]
    assert told == pytest.approx([0.01 * rate for rate in curve(steps=12, warmup=4)])


def test_pieces_and_processes_share_out_the_rows_of_a_step():
    cell, task = tiny(accumulate=2), lab.build("task", tiny().task)
    whole = task.examples("train", 0, 5 * 12, 12)
    shares = [list(Pieces(task, cell, 0, rank, 3).of(5)) for rank in range(3)]
    assert torch.equal(torch.cat([piece.tokens for share in shares for piece in share]), whole.tokens)
    assert torch.equal(torch.cat([piece.labels for share in shares for piece in share]), whole.labels)
    assert sum(share[0].due for share in shares) == (whole.labels >= 0).sum()


def test_pieces_add_up_to_one_batch(tmp_path):
    one, three = Notebook(), Notebook()
    whole = fit(tiny(precision="64"), tmp_path / "whole", one)
    cut = fit(tiny(precision="64", accumulate=3), tmp_path / "cut", three)
    torch.testing.assert_close(weights(tmp_path / "whole"), weights(tmp_path / "cut"))
    assert next(iter(weights(tmp_path / "whole").values())).dtype == torch.float64
    assert [point[:2] for point in one.curves()] == [point[:2] for point in three.curves()]
    assert [point[2] for point in one.curves()] == pytest.approx([point[2] for point in three.curves()])
    assert whole.metrics == pytest.approx(cut.metrics)


def test_a_batch_that_does_not_go_round_is_refused(folder):
    with pytest.raises(ConfigError, match="12 sequences do not divide over 5 devices on 1 nodes, in 3 pieces each"):
        fit_here(tiny(devices=5, accumulate=3), folder)


def test_clipping_changes_the_step_and_not_the_norm_that_is_told(tmp_path):
    # Adam forgets the size of a gradient that is always clipped alike: eps makes it count
    told = {}
    for clip in (None, 1e6, 1e-3):
        notes = Notebook()
        fit(tiny(steps=1, clip=clip, adam_eps=1.0), tmp_path / str(clip), notes)
        told[clip] = (notes[0][1]["train/gradient_norm"], weights(tmp_path / str(clip)))
    assert told[None][0] == told[1e6][0] == told[1e-3][0] > 1e-3
    torch.testing.assert_close(told[None][1], told[1e6][1])
    name = "model.head.weight"
    start = lab.build_model(**tiny().model, vocabulary=3).head.weight * (1 - 1e-3 * 0.1)
    free, clipped = ((told[clip][1][name] - start).norm() for clip in (None, 1e-3))
    assert 0 < clipped < 0.5 * free


def test_vectors_decay_only_if_asked_and_fading_never():
    model = lab.build_model(width=16, heads=2, layers=1, vocabulary=3, update_rule="gated_delta", bias=True)
    names = {id(parameter): name for name, parameter in model.named_parameters()}

    def staying(decay):
        found = [g for g in groups(model, TrainConfig(decay=decay, weight_decay=0.3)) if g["weight_decay"] == 0]
        return {names[id(parameter)].split(".")[-1] for group in found for parameter in group["params"]}

    assert staying("all") == {"log_rate", "fade_bias"}
    assert {"log_rate", "fade_bias", "bias"} < staying("matrices")
    decaying = groups(model, TrainConfig(decay="matrices", weight_decay=0.3))[0]
    assert decaying["weight_decay"] == 0.3 and all(parameter.ndim >= 2 for parameter in decaying["params"])
    assert sum(len(group["params"]) for group in groups(model, TrainConfig())) == len(names)


def test_a_group_that_would_be_empty_is_left_out():
    model = lab.build_model(width=16, heads=2, layers=1, vocabulary=3)
    assert [group["weight_decay"] for group in groups(model, TrainConfig())] == [0.1]
