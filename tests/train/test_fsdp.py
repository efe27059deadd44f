"""Training with fsdp2 equals training in one process, and their checkpoints are interchangeable."""

import pytest
import torch

from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.rundir.diagnostics import read_determinism_check, read_probe_tables
from hqlt_lab.rundir.outcome import read_outcome
from hqlt_lab.train.fit import fit
from hqlt_lab.train.load_trained_model import load_cell
from tests.train.conftest import MetricsLog, equal_weights, last_weights, tiny_cell
from tests.train.test_distributed import fit_two_processes, run_rank

# two parameter groups, tied weights, odd sizes, and one more evaluation batch in one process than in the other
UNEVEN_CELL = {
    "task": {"eval_size": 41},
    "model": {"update_rule": "gated_delta", "tie_embeddings": True, "layers": 2, "mlp_width": 13},
    "decay": "matrices",
    "weight_decay": 10.0,
    "eval_batch_size": 20,
    "precision": "64",
}
FSDP2, DDP = ({"devices": 2, "accumulate": 3, "trainer": {"strategy": name}} for name in ("fsdp2", "ddp"))
STRATEGIES = {"one": {}, "ddp": DDP, "fsdp2": FSDP2}


def train_with(strategy, folder, stop_at=None, **changes):
    """Train from the state of the folder, to the end or until stopped, and return the logged points."""
    cell = tiny_cell(**{"steps": 10} | changes | STRATEGIES[strategy])
    if strategy != "one":
        return fit_two_processes(cell, folder, stop_at)
    log = MetricsLog(stop_at)
    if stop_at is None:
        fit(cell, folder, log)
    else:
        with pytest.raises(Exception, match="saved at step 6"):
            fit(cell, folder, log)
    return log.timeless_points()


def assert_same_curves(first, second, rel):
    assert [point[:2] for point in first] == [point[:2] for point in second]
    assert [point[2] for point in first] == pytest.approx([point[2] for point in second], rel=rel)


def test_two_sharded_processes_train_like_one(tmp_path):
    single, sharded = (train_with(strategy, tmp_path / strategy, **UNEVEN_CELL) for strategy in ("one", "fsdp2"))
    assert_same_curves(single, sharded, 1e-9)
    torch.testing.assert_close(last_weights(tmp_path / "one"), last_weights(tmp_path / "fsdp2"), rtol=1e-10, atol=1e-12)
    one, two = read_outcome(tmp_path / "one"), read_outcome(tmp_path / "fsdp2")
    assert one.metrics == pytest.approx(two.metrics) and one.errors == pytest.approx(two.errors)
    assert (two.repeatable, two.parameters, two.state_bytes) == (True, one.parameters, one.state_bytes)
    loaded = load_cell(tmp_path / "fsdp2").model.state_dict()
    stored = last_weights(tmp_path / "fsdp2")
    assert equal_weights(loaded, {name.removeprefix("model."): value.float() for name, value in stored.items()})
    assert [table.step for table in read_probe_tables(tmp_path / "fsdp2")] == [6, 10]


@pytest.mark.slow
@pytest.mark.parametrize("after", STRATEGIES)
@pytest.mark.parametrize("before", STRATEGIES)
def test_a_run_can_be_resumed_with_any_strategy_whatever_it_was_saved_with(tmp_path, before, after):
    straight = train_with("one", tmp_path / "straight", **UNEVEN_CELL)
    first = train_with(before, tmp_path / "run", stop_at=5, **UNEVEN_CELL)
    rest = train_with(after, tmp_path / "run", **UNEVEN_CELL)
    assert_same_curves(straight, first + rest, 1e-9)
    torch.testing.assert_close(
        last_weights(tmp_path / "straight"), last_weights(tmp_path / "run"), rtol=1e-10, atol=1e-12
    )
    checkpoints = [torch.load(tmp_path / name / "last.ckpt", weights_only=True) for name in ("straight", "run")]
    moments = [checkpoint["optimizer_states"][0]["state"] for checkpoint in checkpoints]
    torch.testing.assert_close(*moments, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_in_float32_strategies_differ_by_rounding(tmp_path, strategy):
    single, double = train_with("one", tmp_path / "one"), train_with(strategy, tmp_path / "two")
    assert_same_curves(single, double, 1e-5)
    torch.testing.assert_close(last_weights(tmp_path / "one"), last_weights(tmp_path / "two"), rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_recomputing_activations_changes_nothing(tmp_path, strategy):
    single = train_with("one", tmp_path / "one", **UNEVEN_CELL)
    recomputed = train_with(strategy, tmp_path / "two", **UNEVEN_CELL, recompute=True)
    assert_same_curves(single, recomputed, 1e-9)
    torch.testing.assert_close(last_weights(tmp_path / "one"), last_weights(tmp_path / "two"), rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [DDP, FSDP2], ids=["ddp", "fsdp2"])
def test_a_compiled_model_trains_the_same_with_each_strategy(tmp_path, changes):
    fixed = {"task": {"train_length": [8, 8], "test_length": [8, 8]}, "steps": 3, "precision": "64"}
    log = MetricsLog()
    fit(tiny_cell(**fixed), tmp_path / "one", log)
    compiled = tiny_cell(**fixed | changes, recompute=True, compile=True)
    assert_same_curves(log.timeless_points(), fit_two_processes(compiled, tmp_path / "two", timeout=600), 1e-9)


@pytest.mark.slow
def test_under_autocast_master_weights_are_float32(tmp_path):
    curves = [train_with(strategy, tmp_path / strategy, precision="bf16-mixed") for strategy in ("one", "fsdp2")]
    # accuracies are left out: rounding may flip the answer to a single question
    assert_same_curves(*([point for point in curve if "accuracy" not in point[1]] for curve in curves), 0.05)
    assert {value.dtype for value in last_weights(tmp_path / "fsdp2").values()} == {torch.float32}


@pytest.mark.slow
def test_the_best_weights_are_tested(tmp_path):
    changes = UNEVEN_CELL | {"report": "best_valid", "keep": "best", "valid_every": 2}
    changes |= {"lr": 3.0, "measure": {"select": "valid/loss", "direction": "minimize"}}  # the loss only increases
    for strategy in ("one", "fsdp2"):
        train_with(strategy, tmp_path / strategy, **changes)
    one, two = (read_outcome(tmp_path / strategy).metrics for strategy in ("one", "fsdp2"))
    assert one == pytest.approx(two)
    checkpoints = [torch.load(tmp_path / name / "best.ckpt", weights_only=True) for name in ("one", "fsdp2")]
    assert checkpoints[0]["global_step"] == checkpoints[1]["global_step"] < 10
    torch.testing.assert_close(*(checkpoint["state_dict"] for checkpoint in checkpoints), rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_nondeterminism_in_rank_one_shows_in_the_reduced_gradients_of_rank_zero(tmp_path):
    only_rank_one = {"mixer": {"name": "nondeterministic", "process": 1}}
    fit_two_processes(tiny_cell(model=only_rank_one, steps=2, **FSDP2), tmp_path)
    check = read_determinism_check(tmp_path)
    # the loss of rank 0 is repeatable, but its shard of the gradients comes from both processes
    assert not check.repeatable and check.differs and "loss" not in check.differs


@pytest.mark.slow
def test_sharded_processes_diverge_together_and_save_unsharded_weights(tmp_path):
    cell = tiny_cell(steps=10, lr=1e30, schedule="constant", clip=None, **FSDP2)
    assert fit(cell, tmp_path).status == "diverged"
    weights = torch.load(tmp_path / "diverged.pt", weights_only=True)["model"]
    assert sum(value.numel() for value in weights.values()) == read_outcome(tmp_path).parameters


def run_rank_and_check_shard(rank, port, cell_dict, folder, stop_at):
    """Train in one of two processes, and check the size of its shard at the start of every step."""

    def check_shard(module, inputs):
        if isinstance(module, SequenceModel) and module.training:
            local = sum(parameter.to_local().numel() for parameter in module.parameters())
            assert 0.4 < local / sum(parameter.numel() for parameter in module.parameters()) < 0.6

    torch.nn.modules.module.register_module_forward_pre_hook(check_shard)
    run_rank(rank, port, cell_dict, folder, stop_at)


@pytest.mark.slow
def test_between_steps_each_process_holds_half_of_the_parameters(tmp_path):
    fit_two_processes(tiny_cell(steps=3, valid_every=1, **FSDP2), tmp_path, target=run_rank_and_check_shard)
    assert read_outcome(tmp_path).status == "done"
