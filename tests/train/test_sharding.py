"""Processes that have shares of a model learn what one does that has all of it, and their files are the same."""

import pytest
import torch

from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.train.canary_file import read_canary
from hqlt_lab.train.fit import fit
from hqlt_lab.train.load import load_cell
from hqlt_lab.train.outcome import read_outcome
from hqlt_lab.train.probe_file import probe_tables
from tests.train.conftest import Notebook, same, tiny, weights
from tests.train.test_processes import fit_pair, one_of_two

# two groups of parameters, tied weights, odd sizes, and one process with a batch more than the other
AWKWARD = {
    "task": {"eval_size": 41},
    "model": {"update_rule": "gated_delta", "tie_embeddings": True, "layers": 2, "mlp_width": 13},
    "decay": "matrices",
    "weight_decay": 10.0,
    "eval_batch_size": 20,
    "precision": "64",
}
FSDP2, DDP = ({"devices": 2, "accumulate": 3, "trainer": {"strategy": name}} for name in ("fsdp2", "ddp"))
WAYS = {"one": {}, "ddp": DDP, "fsdp2": FSDP2}


def trained(way, folder, stop_at=None, **changes):
    """The curves of a run in this folder, from where it is to where it is asked to stop."""
    cell = tiny(**{"steps": 10} | changes | WAYS[way])
    if way != "one":
        return fit_pair(cell, folder, stop_at)
    notes = Notebook(stop_at)
    if stop_at is None:
        fit(cell, folder, notes)
    else:
        with pytest.raises(Exception, match="saved at step 6"):
            fit(cell, folder, notes)
    return notes.curves()


def same_curves(one, other, close):
    assert [point[:2] for point in one] == [point[:2] for point in other]
    assert [point[2] for point in one] == pytest.approx([point[2] for point in other], rel=close)


def test_two_processes_with_shares_learn_what_one_does(tmp_path):
    alone, shared = (trained(way, tmp_path / way, **AWKWARD) for way in ("one", "fsdp2"))
    same_curves(alone, shared, 1e-9)
    torch.testing.assert_close(weights(tmp_path / "one"), weights(tmp_path / "fsdp2"), rtol=1e-10, atol=1e-12)
    one, two = read_outcome(tmp_path / "one"), read_outcome(tmp_path / "fsdp2")
    assert one.metrics == pytest.approx(two.metrics) and one.errors == pytest.approx(two.errors)
    assert (two.repeatable, two.parameters, two.state_bytes) == (True, one.parameters, one.state_bytes)
    loaded = load_cell(tmp_path / "fsdp2").model.state_dict()
    assert same(loaded, {name[len("model.") :]: each.float() for name, each in weights(tmp_path / "fsdp2").items()})
    assert [look.step for look in probe_tables(tmp_path / "fsdp2")] == [6, 10]


@pytest.mark.slow
@pytest.mark.parametrize("after", WAYS)
@pytest.mark.parametrize("before", WAYS)
def test_a_run_goes_on_in_any_way_whatever_it_was_saved_by(tmp_path, before, after):
    straight = trained("one", tmp_path / "straight", **AWKWARD)
    first = trained(before, tmp_path / "run", stop_at=5, **AWKWARD)
    rest = trained(after, tmp_path / "run", **AWKWARD)
    same_curves(straight, first + rest, 1e-9)
    torch.testing.assert_close(weights(tmp_path / "straight"), weights(tmp_path / "run"), rtol=1e-10, atol=1e-12)
    stored = [torch.load(tmp_path / name / "last.ckpt", weights_only=True) for name in ("straight", "run")]
    averages = [file["optimizer_states"][0]["state"] for file in stored]
    torch.testing.assert_close(*averages, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["ddp", "fsdp2"])
def test_in_32_bits_they_differ_by_rounding(tmp_path, way):
    alone, together = trained("one", tmp_path / "one"), trained(way, tmp_path / "two")
    same_curves(alone, together, 1e-5)
    torch.testing.assert_close(weights(tmp_path / "one"), weights(tmp_path / "two"), rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["ddp", "fsdp2"])
def test_computing_again_changes_nothing(tmp_path, way):
    alone = trained("one", tmp_path / "one", **AWKWARD)
    again = trained(way, tmp_path / "two", **AWKWARD, recompute=True)
    same_curves(alone, again, 1e-9)
    torch.testing.assert_close(weights(tmp_path / "one"), weights(tmp_path / "two"), rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("way", [DDP, FSDP2], ids=["ddp", "fsdp2"])
def test_compiled_they_learn_the_same(tmp_path, way):
    fixed = {"task": {"train_length": [8, 8], "test_length": [8, 8]}, "steps": 3, "precision": "64"}
    alone = Notebook()
    fit(tiny(**fixed), tmp_path / "one", alone)
    compiled = tiny(**fixed | way, recompute=True, compile=True)
    same_curves(alone.curves(), fit_pair(compiled, tmp_path / "two", patience=600), 1e-9)


@pytest.mark.slow
def test_under_autocast_masters_have_32_bits(tmp_path):
    alone, together = (trained(way, tmp_path / way, precision="bf16-mixed") for way in ("one", "fsdp2"))
    # an answer that is near the border may fall on the other side of it: of accuracies nothing follows
    same_curves(*([point for point in curve if "accuracy" not in point[1]] for curve in (alone, together)), 0.05)
    assert {each.dtype for each in weights(tmp_path / "fsdp2").values()} == {torch.float32}


@pytest.mark.slow
def test_the_best_weights_are_tested(tmp_path):
    awkward = AWKWARD | {"report": "best_valid", "keep": "best", "valid_every": 2}
    awkward |= {"lr": 3.0, "measure": {"select": "valid/loss", "direction": "minimize"}}  # it only becomes worse
    for way in ("one", "fsdp2"):
        trained(way, tmp_path / way, **awkward)
    one, two = (read_outcome(tmp_path / way).metrics for way in ("one", "fsdp2"))
    assert one == pytest.approx(two)
    files = [torch.load(tmp_path / way / "best.ckpt", weights_only=True) for way in ("one", "fsdp2")]
    assert files[0]["global_step"] == files[1]["global_step"] < 10
    torch.testing.assert_close(*(file["state_dict"] for file in files), rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_the_canary_hears_the_second_process_through_the_exchange(tmp_path):
    restless = {"mixer": {"name": "restless", "process": 1}}
    fit_pair(tiny(model=restless, steps=2, **FSDP2), tmp_path)
    found = read_canary(tmp_path)
    # the first process's own loss repeats, but its share of the gradients is of both
    assert not found.repeatable and found.differs and "loss" not in found.differs


@pytest.mark.slow
def test_shares_diverge_together_and_keep_whole_weights(tmp_path):
    cell = tiny(steps=10, lr=1e30, schedule="constant", clip=None, **FSDP2)
    assert fit(cell, tmp_path).status == "diverged"
    kept = torch.load(tmp_path / "diverged.pt", weights_only=True)["model"]
    assert sum(each.numel() for each in kept.values()) == read_outcome(tmp_path).parameters


def one_that_looks(rank, port, told, folder, stop_at):
    """Trains as one of two, and looks at what it has whenever a step begins."""

    def look(module, given):
        if isinstance(module, SequenceModel) and module.training:
            here = sum(each.to_local().numel() for each in module.parameters())
            assert 0.4 < here / sum(each.numel() for each in module.parameters()) < 0.6

    torch.nn.modules.module.register_module_forward_pre_hook(look)
    one_of_two(rank, port, told, folder, stop_at)


@pytest.mark.slow
def test_between_steps_a_process_has_half_of_the_model(tmp_path):
    fit_pair(tiny(steps=3, valid_every=1, **FSDP2), tmp_path, work=one_that_looks)
    assert read_outcome(tmp_path).status == "done"
