"""How a run ends: solved, with its best weights, or diverged."""

import pytest
import torch
import torch.nn.functional as F

import hqlt_lab as lab
from hqlt_lab.errors import TrainingError
from hqlt_lab.tasks._base import Batch
from hqlt_lab.train.cost.estimate import model_sizes_by_split
from hqlt_lab.train.fit import fit
from hqlt_lab.train.scoring import score_model
from tests.issues import raises_issue
from tests.train.conftest import MODEL, TASK, MetricsLog, equal_weights, last_weights, tiny_cell

LEARNABLE = {
    "task": {"eval_size": 256, "train_length": [3, 12], "test_length": [10, 40]},
    "model": {"width": 32, "mlp_width": 64},
    "lr": 3e-3,
    "batch_size": 32,
}


@pytest.mark.parametrize(
    ("metric", "direction", "best"), [("valid/normalized_accuracy", "maximize", max), ("valid/loss", "minimize", min)]
)
def test_the_run_stops_at_the_first_validation_that_reaches_stop_at(metric, direction, best, tmp_path):
    settings = {"steps": 10, "valid_every": 2, "measure": {"select": metric, "direction": direction}}
    log = MetricsLog()
    fit(tiny_cell(**settings), tmp_path / "whole", log)
    value_by_step = {step: metrics[metric] for step, metrics in log if metric in metrics}
    value_by_step.pop(10)
    target = best(value_by_step.values())
    outcome = fit(tiny_cell(**settings, stop_at=target), tmp_path / "stopped")
    assert outcome.status == "done" and outcome.metrics[metric] == target
    assert outcome.step == min(step for step, value in value_by_step.items() if value == target)
    assert outcome.message.startswith(f"solved at step {outcome.step}: {metric} is ")
    assert outcome.tokens_per_second > 0 and outcome.seconds > 0


@pytest.mark.slow
def test_parity_is_learned(folder):
    outcome = fit(tiny_cell(**LEARNABLE, steps=400, valid_every=25, stop_at=99.0), folder)
    assert outcome.status == "done" and outcome.step < 400
    assert outcome.metrics["valid/normalized_accuracy"] >= 99 and outcome.metrics["test/normalized_accuracy"] > 95


def test_an_outcome_has_the_model_sizes(folder):
    cell = tiny_cell(steps=2)
    outcome, size = fit(cell, folder), model_sizes_by_split(cell, "train")["train"]
    assert (outcome.parameters, outcome.state_bytes) == (size.total.parameters, size.total.state)
    assert outcome.flops_per_token == size.total.training / 9 and size.total.state > 0


def test_metrics_have_their_documented_names(folder):
    log = MetricsLog()
    outcome = fit(tiny_cell(log_every=4), folder, log)
    train = {"train/loss", "train/lr", "train/gradient_norm", "speed/tokens_per_second", "speed/steps_per_second"}
    assert [set(metrics) for step, metrics in log if step == 4] == [train]
    logged = dict(item for step, metrics in log if step == 12 for item in metrics.items())
    valid = {"valid/accuracy", "valid/normalized_accuracy", "valid/short_accuracy", "valid/short_normalized_accuracy"}
    assert valid | {"valid/accuracy/length_6_11", "test/accuracy", "test/normalized_accuracy"} < set(logged)
    assert outcome.metrics == {
        name: value for name, value in logged.items() if name.split("/")[0] in ("valid", "test") or name == "train/loss"
    }


def test_report_best_valid_tests_the_best_weights(folder, tmp_path):
    # a learning rate that is far too high at the end destroys what was learned
    too_high = LEARNABLE | {"lr": 0.3, "warmup": 200, "schedule": "constant", "clip": None}
    cell = tiny_cell(**too_high, steps=120, valid_every=10, report="best_valid", keep="best", checkpoint_every=100)
    log = MetricsLog()
    outcome = fit(cell, folder, log)
    scores = {step: metrics["valid/normalized_accuracy"] for step, metrics in log if "valid/accuracy" in metrics}
    best = max(scores, key=lambda step: scores[step])
    assert best < 120 and scores[best] > scores[120]
    assert outcome.metrics["valid/normalized_accuracy"] == scores[best] and outcome.step == 120
    checkpoint = torch.load(folder / "best.ckpt", weights_only=True)
    assert checkpoint["global_step"] == best
    task, model = lab.build("task", cell.task), lab.build_model(**cell.model, vocabulary=3)
    model.load_state_dict({name.removeprefix("model."): value for name, value in checkpoint["state_dict"].items()})
    metrics = score_model(model, task, "test", 256).metrics
    assert metrics["normalized_accuracy"] == outcome.metrics["test/normalized_accuracy"]


def test_a_run_that_diverges_stops_before_its_weights_are_lost(folder):
    cell = tiny_cell(lr=1e30, schedule="constant", clip=None)
    outcome = fit(cell, folder)
    assert outcome.status == "diverged" and 0 < outcome.step < 12
    assert outcome.message.startswith(f"stopped at step {outcome.step}: the ")
    dump = torch.load(folder / "diverged.pt", weights_only=True)
    assert dump["step"] == outcome.step
    batch = lab.build("task", cell.task).get_examples("train", 0, outcome.step * 12, 12)
    assert all(torch.equal(dump[name], getattr(batch, name)) for name in Batch._fields)
    assert all(value.isfinite().all() for value in dump["model"].values())
    # a diverged run is final and not trained again
    log = MetricsLog()
    assert fit(cell, folder, log) == outcome and not log


def test_checkpoints_left_by_a_run_killed_before_cleanup_are_removed_by_the_next_call(folder):
    cell = tiny_cell(keep="best", checkpoint_every=4)
    outcome, leftovers = fit(cell, folder), ("last.ckpt", "previous.ckpt", "replay.bin")
    for name in leftovers:
        (folder / name).write_bytes(b"much")
    assert fit(cell, folder) == outcome
    assert (folder / "best.ckpt").exists() and not any((folder / name).exists() for name in leftovers)


def test_a_single_process_run_in_a_slurm_task_removes_its_checkpoints(folder, monkeypatch):
    monkeypatch.setenv("SLURM_PROCID", "1")
    fit(tiny_cell(keep="none", checkpoint_every=4), folder)
    assert not [*folder.glob("*.ckpt")]


def test_weights_are_not_removed_if_the_checkpoint_to_keep_does_not_exist(folder):
    outcome = fit(tiny_cell(), folder)
    assert fit(tiny_cell(keep="best"), folder) == outcome and (folder / "last.ckpt").exists()


def test_an_unknown_selection_metric_is_reported_with_the_nearest_name(folder):
    with pytest.raises(TrainingError, match=r"there is no metric 'valid/acuracy'. Did you mean 'valid/accuracy'\?"):
        fit(tiny_cell(measure={"select": "valid/acuracy"}), folder)


def test_scores_do_not_depend_on_the_batch_size_and_scoring_does_not_change_the_model():
    task, model = lab.build("task", TASK), lab.build_model(**tiny_cell().model, vocabulary=3)
    model.train()
    one_batch, small_batches = score_model(model, task, "valid", 40), score_model(model, task, "valid", 7)
    assert small_batches.metrics == pytest.approx(one_batch.metrics)
    assert small_batches.errors == pytest.approx(one_batch.errors)
    assert model.training and all(parameter.grad is None for parameter in model.parameters())


def test_a_model_is_scored_without_dropout_and_on_the_requested_split():
    task = lab.build("task", TASK)
    plain, with_dropout = (lab.build_model(**MODEL, vocabulary=3, dropout=rate).train() for rate in (0.0, 0.5))
    scores = {split: score_model(plain, task, split, 16).metrics for split in ("valid", "test")}
    assert score_model(with_dropout, task, "test", 16).metrics == scores["test"]
    for split, metrics in scores.items():
        batch = task.get_examples(split, 0, 0, task.eval_size)
        logits, _ = plain.eval()(batch.tokens)
        expected = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=-1).item()
        assert metrics["loss"] == pytest.approx(expected, rel=1e-5)
    assert scores["valid"]["loss"] != scores["test"]["loss"]


def test_validation_scores_are_those_of_the_valid_split_and_the_test_split_is_scored_at_the_end(folder):
    cell, log = tiny_cell(), MetricsLog()
    outcome = fit(cell, folder, log)
    task, model = lab.build("task", cell.task), lab.build_model(**cell.model, vocabulary=3)
    model.load_state_dict({name.removeprefix("model."): value for name, value in last_weights(folder).items()})
    for split in ("valid", "test"):
        metrics = score_model(model, task, split, 16).metrics
        assert {name: outcome.metrics[f"{split}/{name}"] for name in metrics} == pytest.approx(metrics)
    assert [step for step, metrics in log if "test/loss" in metrics] == [12]
    assert outcome.metrics["valid/loss"] != outcome.metrics["test/loss"]


def test_recomputing_activations_gives_bitwise_equal_results(tmp_path):
    stored, recomputed = (fit(tiny_cell(recompute=value), tmp_path / str(value)) for value in (False, True))
    assert stored.metrics == recomputed.metrics
    assert equal_weights(last_weights(tmp_path / "False"), last_weights(tmp_path / "True"))


@pytest.mark.slow
def test_a_compiled_model_trains_the_same(tmp_path):
    plain, compiled = fit(tiny_cell(), tmp_path / "plain"), fit(tiny_cell(compile=True), tmp_path / "compiled")
    assert compiled.metrics == pytest.approx(plain.metrics, rel=1e-3)


def test_a_model_is_scored_in_the_precision_of_training(folder):
    cell = tiny_cell(steps=2, precision="bf16-mixed")
    outcome = fit(cell, folder)
    task, model = lab.build("task", cell.task), lab.build_model(**cell.model, vocabulary=3)
    weights = torch.load(folder / "last.ckpt", weights_only=True)["state_dict"]
    model.load_state_dict({name.removeprefix("model."): value for name, value in weights.items()})
    in_float32 = score_model(model, task, "test", 256).metrics["loss"]
    with torch.autocast("cpu", torch.bfloat16):
        in_bfloat16 = score_model(model, task, "test", 256).metrics["loss"]
    assert abs(outcome.metrics["test/loss"] - in_bfloat16) < 0.1 * abs(in_float32 - in_bfloat16)


def test_bf16_trains_and_float16_is_refused_without_a_gpu(folder):
    assert fit(tiny_cell(steps=2, precision="bf16-mixed"), folder).status == "done"
    with raises_issue("trainer.precision", "precision_needs_gpu"):
        fit(tiny_cell(steps=2, precision="16-mixed"), folder.with_name("other"))
