"""How a run ends: solved, with its best weights, or no longer a number."""

import pytest
import torch

import hqlt_lab as lab
from hqlt_lab.errors import ConfigError, TrainingError
from hqlt_lab.tasks._base import Batch
from hqlt_lab.train.cost import sizes_of
from hqlt_lab.train.fit import fit
from hqlt_lab.train.score import score
from tests.train.conftest import TASK, Notebook, same, tiny, weights

LEARNS = {
    "task": {"eval_size": 256, "train_length": [3, 12], "test_length": [10, 40]},
    "model": {"width": 32, "mlp_width": 64},
    "lr": 3e-3,
    "batch_size": 32,
}


def test_parity_is_learned_and_the_run_stops_once_it_is_solved(folder):
    outcome = fit(tiny(**LEARNS, steps=400, valid_every=25, stop_at=99.0), folder)
    assert outcome.status == "done" and outcome.step < 400
    assert outcome.message.startswith(f"solved at step {outcome.step}: valid/normalised_accuracy is ")
    assert outcome.metrics["valid/normalised_accuracy"] >= 99 and outcome.metrics["test/normalised_accuracy"] > 95
    assert outcome.tokens_per_second > 0 and outcome.seconds > 0


def test_an_outcome_tells_how_large_the_model_is(folder):
    cell = tiny(steps=2)
    outcome, size = fit(cell, folder), sizes_of(cell, "train")["train"]
    assert (outcome.parameters, outcome.state_bytes) == (size.total.parameters, size.total.state)
    assert outcome.flops_per_token == size.total.training / 9 and size.total.state > 0


def test_smaller_can_be_better(folder):
    measure = {"select": "valid/loss", "direction": "minimize"}
    outcome = fit(tiny(**LEARNS, steps=400, valid_every=10, stop_at=0.5, measure=measure), folder)
    assert outcome.step < 400 and outcome.metrics["valid/loss"] <= 0.5


def test_metrics_have_the_names_of_the_house(folder):
    notes = Notebook()
    outcome = fit(tiny(log_every=4), folder, notes)
    train = {"train/loss", "train/lr", "train/gradient_norm", "speed/tokens_per_second", "speed/steps_per_second"}
    assert [set(metrics) for step, metrics in notes if step == 4] == [train]
    told = dict(item for step, metrics in notes if step == 12 for item in metrics.items())
    valid = {"valid/accuracy", "valid/normalised_accuracy", "valid/short_accuracy", "valid/short_normalised_accuracy"}
    assert valid | {"valid/accuracy/length_6_11", "test/accuracy", "test/normalised_accuracy"} < set(told)
    assert outcome.metrics == {
        name: value for name, value in told.items() if name.split("/")[0] in ("valid", "test") or name == "train/loss"
    }


def test_the_best_weights_are_tested_where_that_is_asked_for(folder, tmp_path):
    # a rate that is far too high at the end unlearns what was learned
    ruin = LEARNS | {"lr": 0.3, "warmup": 200, "schedule": "constant", "clip": None}
    cell = tiny(**ruin, steps=120, valid_every=10, report="best_valid", keep="best", checkpoint_every=100)
    notes = Notebook()
    outcome = fit(cell, folder, notes)
    scores = {step: m["valid/normalised_accuracy"] for step, m in notes if "valid/accuracy" in m}
    best = max(scores, key=lambda step: scores[step])
    assert best < 120 and scores[best] > scores[120]
    assert outcome.metrics["valid/normalised_accuracy"] == scores[best] and outcome.step == 120
    stored = torch.load(folder / "best.ckpt", weights_only=True)
    assert stored["global_step"] == best
    task, model = lab.build("task", cell.task), lab.build_model(**cell.model, vocabulary=3)
    model.load_state_dict({name.removeprefix("model."): value for name, value in stored["state_dict"].items()})
    found = score(model, task, "test", 256).metrics
    assert found["normalised_accuracy"] == outcome.metrics["test/normalised_accuracy"]


def test_a_run_that_is_no_longer_a_number_stops_before_its_weights_are_lost(folder):
    cell = tiny(lr=1e30, schedule="constant", clip=None)
    outcome = fit(cell, folder)
    assert outcome.status == "diverged" and 0 < outcome.step < 12
    assert outcome.message.startswith(f"stopped at step {outcome.step}: the ")
    kept = torch.load(folder / "diverged.pt", weights_only=True)
    assert kept["step"] == outcome.step
    batch = lab.build("task", cell.task).examples("train", 0, outcome.step * 12, 12)
    assert all(torch.equal(kept[name], getattr(batch, name)) for name in Batch._fields)
    assert all(value.isfinite().all() for value in kept["model"].values())
    # repeating it would only repeat it
    again = Notebook()
    assert fit(cell, folder, again) == outcome and not again


def test_what_a_run_leaves_when_it_is_killed_before_it_has_tidied_is_gone_the_next_time(folder):
    cell = tiny(keep="best", checkpoint_every=4)
    outcome, left = fit(cell, folder), ("last.ckpt", "previous.ckpt", "replay.bin")
    for name in left:
        (folder / name).write_bytes(b"much")
    assert fit(cell, folder) == outcome
    assert (folder / "best.ckpt").exists() and not any((folder / name).exists() for name in left)


def test_one_of_several_tasks_of_a_job_tidies_what_it_has_trained_alone(folder, monkeypatch):
    monkeypatch.setenv("SLURM_PROCID", "1")
    fit(tiny(keep="none", checkpoint_every=4), folder)
    assert not [*folder.glob("*.ckpt")]


def test_no_weights_are_thrown_away_for_those_that_were_never_kept(folder):
    outcome = fit(tiny(), folder)
    assert fit(tiny(keep="best"), folder) == outcome and (folder / "last.ckpt").exists()


def test_a_metric_that_is_not_measured_is_told_with_those_that_are(folder):
    with pytest.raises(TrainingError, match=r"no metric is called 'valid/acuracy'. Did you mean 'valid/accuracy'\?"):
        fit(tiny(measure={"select": "valid/acuracy"}), folder)


def test_scores_do_not_depend_on_the_batch_and_leave_the_model_as_it_was():
    task, model = lab.build("task", TASK), lab.build_model(**tiny().model, vocabulary=3)
    model.train()
    whole, pieces = score(model, task, "valid", 40), score(model, task, "valid", 7)
    assert pieces.metrics == pytest.approx(whole.metrics) and pieces.errors == pytest.approx(whole.errors)
    assert model.training and all(parameter.grad is None for parameter in model.parameters())


def test_activations_that_are_computed_again_change_no_bit(tmp_path):
    kept, again = (fit(tiny(recompute=wanted), tmp_path / str(wanted)) for wanted in (False, True))
    assert kept.metrics == again.metrics
    assert same(weights(tmp_path / "False"), weights(tmp_path / "True"))


@pytest.mark.slow
def test_a_compiled_model_learns_the_same(tmp_path):
    plain, compiled = fit(tiny(), tmp_path / "plain"), fit(tiny(compile=True), tmp_path / "compiled")
    assert compiled.metrics == pytest.approx(plain.metrics, rel=1e-3)


def test_half_precision_runs_and_is_never_another_than_asked_for(folder):
    assert fit(tiny(steps=2, precision="bf16-mixed"), folder).status == "done"
    with pytest.raises(ConfigError, match="'16-mixed' needs a GPU"):
        fit(tiny(steps=2, precision="16-mixed"), folder.with_name("other"))
