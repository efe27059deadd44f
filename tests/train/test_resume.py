"""Interrupted and resumed is uninterrupted, bit for bit."""

import os
import signal

import pytest
import torch

from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.train.fit import fit
from hqlt_lab.train.interrupt import Interrupted
from hqlt_lab.train.learner import reseed
from hqlt_lab.train.outcome import read_outcome
from tests.train.conftest import Notebook, same, tiny, weights

PLAIN, PIECES, HALF_GATED = {}, {"accumulate": 3}, {"model": {"update_rule": "gated_delta", "mixer": "sum"}}
DOUBLE = {"precision": "64"}


class PowerCut(Exception):
    """The machine is gone."""


@pytest.fixture
def power_cut():
    """Ends the run in the middle of the n-th forward pass of a training step."""
    handles = []

    def after(passes):
        left = [passes]

        def count(module, inputs):
            if isinstance(module, SequenceModel) and module.training:
                left[0] -= 1
                if left[0] < 0:
                    raise PowerCut

        handles.append(torch.nn.modules.module.register_module_forward_pre_hook(count))

    yield after
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("changes", [PLAIN, PIECES, HALF_GATED, DOUBLE], ids=["plain", "pieces", "gated", "64"])
def test_a_run_that_was_asked_to_stop_goes_on_as_if_nothing_happened(tmp_path, changes):
    straight, before, after = Notebook(), Notebook(stop_at=5), Notebook()
    whole = fit(tiny(**changes), tmp_path / "straight", straight)
    with pytest.raises(Interrupted, match=r"saved at step 6\. Run the same command again"):
        fit(tiny(**changes), tmp_path / "halved", before)
    rest = fit(tiny(**changes), tmp_path / "halved", after)
    assert same(weights(tmp_path / "straight"), weights(tmp_path / "halved"))
    assert whole.metrics == rest.metrics
    # every point is told once, in its place
    assert before.curves() + after.curves() == straight.curves()


class Everybody(Notebook):
    """Tells the process twice, as where SLURM tells all processes and the coordinator tells its workers."""

    def __call__(self, step, metrics):
        super().__call__(step, metrics)
        if step == self.stop_at and "train/loss" in metrics:
            os.kill(os.getpid(), signal.SIGTERM)


def test_one_request_that_comes_from_two_sides_lets_the_run_save(folder):
    with pytest.raises(Interrupted, match="stopped and saved at step 6"):
        fit(tiny(), folder, Everybody(stop_at=5))


@pytest.mark.parametrize(("passes", "first"), [(20, 5), (21, 5), (22, 5), (8, 1)])
def test_a_run_that_dies_between_pieces_repeats_the_steps_since_its_checkpoint(tmp_path, power_cut, passes, first):
    cell = tiny(accumulate=3, trainer={"canary": False})  # only the passes of steps are to be counted
    straight, after = Notebook(), Notebook()
    whole = fit(cell, tmp_path / "straight", straight)
    power_cut(passes)
    with pytest.raises(PowerCut):
        fit(cell, tmp_path / "halved")
    torch.nn.modules.module._global_forward_pre_hooks.clear()
    rest = fit(cell, tmp_path / "halved", after)
    assert same(weights(tmp_path / "straight"), weights(tmp_path / "halved"))
    assert whole.metrics == rest.metrics
    assert after[0][0] == first
    assert after.curves() == [point for point in straight.curves() if point[0] >= first]


def test_a_finished_folder_returns_at_once(folder):
    outcome = fit(tiny(), folder)
    again = Notebook()
    assert fit(tiny(), folder, again) == outcome == read_outcome(folder)
    assert not again


def test_a_run_that_is_asked_to_stop_in_its_last_step_is_only_tested_later(folder):
    with pytest.raises(Interrupted, match="saved at step 12"):
        fit(tiny(), folder, Notebook(stop_at=11))
    again = Notebook()
    assert fit(tiny(), folder, again).status == "done" and len(again) == 1


def test_a_run_that_died_before_its_test_is_only_tested(folder):
    cell = tiny(stop_at=-1000.0, checkpoint_every=6)  # solved at the first validation, in the step of a checkpoint
    whole = fit(cell, folder)
    (folder / "outcome.json").unlink()
    again = Notebook()
    assert fit(cell, folder, again).metrics == whole.metrics
    assert [step for step, _ in again] == [6] and all(name.startswith("test/") for name in again[0][1])


def test_random_numbers_of_a_step_do_not_depend_on_what_came_before():
    def drawn(*place):
        reseed(torch.device("cpu"), *place)
        return torch.rand(3)

    one = drawn(0, 3, 1, 0)
    torch.rand(5)
    assert torch.equal(one, drawn(0, 3, 1, 0))
    for elsewhere in [(1, 3, 1, 0), (0, 4, 1, 0), (0, 3, 0, 0), (0, 3, 1, 1)]:
        assert not torch.equal(one, drawn(*elsewhere))
