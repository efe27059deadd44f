"""Memories that start later or learn slower, and softmax windows that are drawn in training."""

from collections import Counter

import pytest
import torch

from hqlt_lab.experiment.run_settings import TrainConfig, WindowRange
from hqlt_lab.model.sequence_model import build_model
from hqlt_lab.model.window_override import set_windows
from hqlt_lab.train.cell_evaluator import CellEvaluator
from hqlt_lab.train.fit import fit
from hqlt_lab.train.interrupt import RunInterrupted
from hqlt_lab.train.load_trained_model import load_cell
from hqlt_lab.train.optim import build_adamw
from hqlt_lab.train.per_memory_training import draw_window, set_evaluation_step, set_training_step
from tests.train.conftest import MODEL, MetricsLog, equal_weights, last_weights, tiny_cell
from tests.train.test_distributed import fit_two_processes

WINDOW = {"window": {"low": 2, "high": 6}}
CHUNKS = {"model": {"timing": {"name": "delayed_chunk", "window": 4}}}
LEARNED_RULE = "model.blocks.0.memory.update_rule.to_beta.weight"


def late(memory, start_step, **settings):
    return {"memories": {memory: {"start_step": start_step, **settings}}}


@pytest.mark.parametrize(
    "changes",
    [
        late("fw", 8, lr_scale=0.5),
        late("kv", 3),
        {**late("fw", 6), "decay": "matrices", "accumulate": 3},
        {**WINDOW, **CHUNKS, "accumulate": 3},
        {**WINDOW, **late("kv", 8), "recompute": True},
    ],
    ids=["fast weights", "softmax", "micro-batches", "window", "both"],
)
def test_a_run_stopped_by_a_signal_and_resumed_equals_an_uninterrupted_one(tmp_path, changes):
    straight, before, after = MetricsLog(), MetricsLog(stop_at=5), MetricsLog()
    uninterrupted = fit(tiny_cell(**changes), tmp_path / "straight", straight)
    with pytest.raises(RunInterrupted, match="saved at step 6"):
        fit(tiny_cell(**changes), tmp_path / "halved", before)
    resumed = fit(tiny_cell(**changes), tmp_path / "halved", after)
    assert equal_weights(last_weights(tmp_path / "straight"), last_weights(tmp_path / "halved"))
    assert uninterrupted.metrics == resumed.metrics and uninterrupted.repeatable
    assert before.timeless_points() + after.timeless_points() == straight.timeless_points()


@pytest.mark.parametrize(("memory", "other"), [("kv", "fw_only"), ("fw", "kv_only")])
def test_a_memory_that_never_starts_is_as_if_the_mixer_did_not_read_it(tmp_path, memory, other):
    silent = fit(tiny_cell(model={"mixer": "sum"}, precision="64", **late(memory, 100)), tmp_path / "silent")
    without = fit(tiny_cell(model={"mixer": other}, precision="64"), tmp_path / "without")
    weights, expected = last_weights(tmp_path / "silent"), last_weights(tmp_path / "without")
    torch.testing.assert_close({name: weights[name] for name in expected}, dict(expected), rtol=0, atol=1e-12)
    assert silent.metrics == pytest.approx(without.metrics, rel=1e-9)
    assert CellEvaluator(tmp_path / "silent").score_split("test", recompute=True) == pytest.approx(
        {name: value for name, value in silent.metrics.items() if name.startswith("test/")}
    )


def test_parameters_of_a_memory_are_frozen_until_it_starts(tmp_path):
    changes = {**late("fw", 6), "weight_decay": 1.0}
    initial = build_model(seed=0, vocabulary=3, **MODEL).state_dict()
    fit(tiny_cell(**changes, steps=6), tmp_path / "frozen")
    weights = last_weights(tmp_path / "frozen")
    assert torch.equal(weights[LEARNED_RULE], initial[LEARNED_RULE.removeprefix("model.")])
    assert not torch.equal(weights["model.blocks.0.memory.to_q.weight"], initial["blocks.0.memory.to_q.weight"])
    fit(tiny_cell(**changes, steps=7), tmp_path / "started")
    assert not torch.equal(last_weights(tmp_path / "started")[LEARNED_RULE], weights[LEARNED_RULE])


def test_best_weights_from_before_the_start_are_tested_without_the_memory(tmp_path):
    changes = late("fw", 7) | {"report": "best_valid", "keep": "best", "lr": 0.5}
    changes |= {"measure": {"select": "valid/loss", "direction": "minimize"}}
    outcome = fit(tiny_cell(**changes), tmp_path)
    best = torch.load(tmp_path / "best.ckpt", weights_only=True)["global_step"]
    assert best == 6 and load_cell(tmp_path).model.memories[0].silent == ("fw",)
    test = {name: value for name, value in outcome.metrics.items() if name.startswith("test/")}
    assert CellEvaluator(tmp_path).score_split("test", recompute=True) == pytest.approx(test)


def test_learning_rate_of_a_memory_is_scaled(tmp_path):
    def change_in_one_step(name, **train):
        fit(tiny_cell(steps=1, weight_decay=0.0, precision="64", clip=None, **train), tmp_path / name)
        initial = build_model(seed=0, vocabulary=3, **MODEL).state_dict()
        return {key: value - initial[key[6:]].double() for key, value in last_weights(tmp_path / name).items()}

    plain, scaled, still = (
        change_in_one_step(str(scale), memories={"fw": {"lr_scale": scale}}) for scale in (1.0, 0.25, 0.0)
    )
    torch.testing.assert_close(scaled[LEARNED_RULE], 0.25 * plain[LEARNED_RULE])
    assert still[LEARNED_RULE].abs().max() == 0 < plain[LEARNED_RULE].abs().max()
    for name in plain.keys() - {LEARNED_RULE}:
        torch.testing.assert_close(scaled[name], plain[name])


def test_scaled_parameters_are_in_groups_of_their_own():
    model = build_model(**MODEL | {"update_rule": "gated_delta", "feature_map": {"name": "dpfp"}})
    train = TrainConfig(lr=0.1, decay="matrices", memories={"fw": {"lr_scale": 0.5}})
    groups = build_adamw(model, train).param_groups
    assert [group["lr"] for group in groups] == [0.1, 0.1, 0.05, 0.05]
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0, 0.1, 0.0]
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    own = {id(parameter) for parameter in model.memories[0].update_rule.parameters()}
    assert {id(parameter) for group in groups[2:] for parameter in group["params"]} == own


def test_settings_of_memories_are_stored_without_defaults():
    assert TrainConfig(memories={"kv": {"start_step": 0}, "fw": {}}) == TrainConfig()
    train = TrainConfig(memories={"kv": {"start_step": 5, "lr_scale": 1}})
    assert train.memories == {"kv": {"start_step": 5}}
    assert (train.memory("kv").start_step, train.memory("kv").lr_scale, train.memory("fw").start_step) == (5, 1.0, 0)


def test_window_is_drawn_uniformly_from_seed_and_step():
    counts = Counter(draw_window(WindowRange(low=2, high=5), seed, step) for seed in range(4) for step in range(1000))
    assert sorted(counts) == [2, 3, 4, 5] and all(900 < count < 1100 for count in counts.values())
    first, second = ([draw_window(WindowRange(low=1, high=99), seed, step) for step in range(20)] for seed in (0, 1))
    assert first != second and first == [draw_window(WindowRange(low=1, high=99), 0, step) for step in range(20)]


def test_window_of_every_windowed_layer_is_set_and_restored():
    timings = ["delayed_stream", {"name": "synchronous", "window": None}, "delayed_chunk", "delayed_stream"]
    model = build_model(width=16, heads=2, layers=4, timing=timings, mixer=["sum", "sum", "sum", "fw_only"])
    declared = [memory.schedule for memory in model.memories]
    cell = tiny_cell(**WINDOW)
    set_training_step(model, cell, 3)
    window = draw_window(WindowRange(low=2, high=6), 0, 3)
    stream, full, chunk, fast_weights = (memory.schedule for memory in model.memories)
    assert (stream.window, stream.delay, chunk.block, chunk.hold) == (window,) * 4
    assert [full, fast_weights] == [declared[1], declared[3]]
    set_evaluation_step(model, cell.train, 3)
    assert [memory.schedule for memory in model.memories] == declared


def test_drawing_the_declared_window_changes_nothing(tmp_path):
    plain = fit(tiny_cell(), tmp_path / "plain")
    drawn = fit(tiny_cell(window={"low": 4, "high": 4}), tmp_path / "drawn")
    assert plain.metrics == drawn.metrics
    assert equal_weights(last_weights(tmp_path / "plain"), last_weights(tmp_path / "drawn"))


def test_training_uses_the_drawn_window_and_evaluation_the_declared_one(tmp_path):
    fit(tiny_cell(window={"low": 2, "high": 2}), tmp_path / "drawn")
    fit(tiny_cell(model={"timing": {"name": "synchronous", "window": 2}}), tmp_path / "short")
    drawn, short = last_weights(tmp_path / "drawn"), last_weights(tmp_path / "short")
    assert equal_weights(drawn, short)
    evaluators = [CellEvaluator(tmp_path / name) for name in ("drawn", "short")]
    drawn_loss, short_loss = (evaluator.outcome.metrics["test/loss"] for evaluator in evaluators)
    assert drawn_loss != short_loss
    assert evaluators[0].score_split("test", recompute=True)["test/loss"] == pytest.approx(drawn_loss)


def test_recomputed_activations_have_the_window_of_their_step(tmp_path):
    for recompute in (False, True):
        fit(tiny_cell(**WINDOW, recompute=recompute), tmp_path / str(recompute))
    torch.testing.assert_close(last_weights(tmp_path / "False"), last_weights(tmp_path / "True"))


def test_a_compiled_model_follows_the_silence_of_its_memories():
    torch.compiler.reset()
    model = build_model(width=16, heads=2, layers=1, timing={"name": "synchronous", "window": 3}, mixer="sum")
    compiled, train, x = torch.compile(model, backend="aot_eager"), TrainConfig(**late("kv", 2)), torch.randn(2, 7, 16)
    for step in (0, 2, 1):
        set_evaluation_step(model, train, step)
        torch.testing.assert_close(compiled(x)[0], model(x)[0])
    set_windows(model, None)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_two_processes_train_like_one(tmp_path, strategy):
    changes = {"precision": "64", **late("fw", 4, lr_scale=0.5), **WINDOW}
    log = MetricsLog()
    fit(tiny_cell(**changes), tmp_path / "one", log)
    points = fit_two_processes(tiny_cell(**changes, devices=2, trainer={"strategy": strategy}), tmp_path / "two")
    assert [point[2] for point in points] == pytest.approx([point[2] for point in log.timeless_points()], rel=1e-9)
