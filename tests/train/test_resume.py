"""A run that is interrupted and resumed is bitwise equal to one that is not."""

import os
import signal

import pytest
import torch

from hqlt_lab.model.sequence_model import SequenceModel
from hqlt_lab.rundir.outcome import read_outcome
from hqlt_lab.train.fit import fit
from hqlt_lab.train.interrupt import RunInterrupted
from hqlt_lab.train.lightning_module import seed_generators
from tests.train.conftest import MetricsLog, equal_weights, last_weights, tiny_cell

NO_CHANGES, ACCUMULATED, GATED_SUM = {}, {"accumulate": 3}, {"model": {"update_rule": "gated_delta", "mixer": "sum"}}
DOUBLE = {"precision": "64"}


class PowerCut(Exception):
    """Stands for the sudden end of the process."""


@pytest.fixture
def power_cut():
    """A function that makes the run crash in a forward pass of training, after a number of passes."""
    handles = []

    def crash_after(passes):
        remaining = [passes]

        def count_pass(module, inputs):
            if isinstance(module, SequenceModel) and module.training:
                remaining[0] -= 1
                if remaining[0] < 0:
                    raise PowerCut

        handles.append(torch.nn.modules.module.register_module_forward_pre_hook(count_pass))

    yield crash_after
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize(
    "changes", [NO_CHANGES, ACCUMULATED, GATED_SUM, DOUBLE], ids=["plain", "micro-batches", "gated", "64"]
)
def test_a_run_stopped_by_a_signal_and_resumed_equals_an_uninterrupted_one(tmp_path, changes):
    straight, before, after = MetricsLog(), MetricsLog(stop_at=5), MetricsLog()
    uninterrupted = fit(tiny_cell(**changes), tmp_path / "straight", straight)
    with pytest.raises(RunInterrupted, match=r"saved at step 6\. Run the same command again"):
        fit(tiny_cell(**changes), tmp_path / "halved", before)
    resumed = fit(tiny_cell(**changes), tmp_path / "halved", after)
    assert equal_weights(last_weights(tmp_path / "straight"), last_weights(tmp_path / "halved"))
    assert uninterrupted.metrics == resumed.metrics
    # every point is logged once, in order
    assert before.timeless_points() + after.timeless_points() == straight.timeless_points()


class DoubleSignalLog(MetricsLog):
    """Sends the signal twice, as if both SLURM and the coordinator signaled the worker."""

    def __call__(self, step, metrics):
        super().__call__(step, metrics)
        if step == self.stop_at and "train/loss" in metrics:
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_that_arrives_twice_lets_the_run_save(folder):
    with pytest.raises(RunInterrupted, match="stopped and saved at step 6"):
        fit(tiny_cell(), folder, DoubleSignalLog(stop_at=5))


@pytest.mark.parametrize(("passes", "first"), [(20, 5), (21, 5), (22, 5), (8, 1)])
def test_a_run_that_crashes_between_micro_batches_repeats_the_steps_since_its_checkpoint(
    tmp_path, power_cut, passes, first
):
    cell = tiny_cell(
        accumulate=3, trainer={"check_determinism": False}
    )  # so that only passes of training steps are counted
    straight, after = MetricsLog(), MetricsLog()
    uninterrupted = fit(cell, tmp_path / "straight", straight)
    power_cut(passes)
    with pytest.raises(PowerCut):
        fit(cell, tmp_path / "halved")
    torch.nn.modules.module._global_forward_pre_hooks.clear()
    resumed = fit(cell, tmp_path / "halved", after)
    assert equal_weights(last_weights(tmp_path / "straight"), last_weights(tmp_path / "halved"))
    assert uninterrupted.metrics == resumed.metrics
    assert after[0][0] == first
    assert after.timeless_points() == [point for point in straight.timeless_points() if point[0] >= first]


def test_a_finished_folder_returns_its_outcome_without_training(folder):
    outcome = fit(tiny_cell(), folder)
    log = MetricsLog()
    assert fit(tiny_cell(), folder, log) == outcome == read_outcome(folder)
    assert not log


def test_a_run_stopped_in_its_last_step_is_only_tested_when_resumed(folder):
    with pytest.raises(RunInterrupted, match="saved at step 12"):
        fit(tiny_cell(), folder, MetricsLog(stop_at=11))
    log = MetricsLog()
    assert fit(tiny_cell(), folder, log).status == "done" and len(log) == 1


def test_a_run_that_crashed_before_its_test_is_only_tested_when_resumed(folder):
    cell = tiny_cell(stop_at=-1000.0, checkpoint_every=6)  # solved at the first validation, in the step of a checkpoint
    outcome = fit(cell, folder)
    (folder / "outcome.json").unlink()
    log = MetricsLog()
    assert fit(cell, folder, log).metrics == outcome.metrics
    assert [step for step, _ in log] == [6] and all(name.startswith("test/") for name in log[0][1])


def test_random_numbers_of_a_step_depend_only_on_its_key():
    def sample(*key):
        seed_generators(torch.device("cpu"), *key)
        return torch.rand(3)

    first = sample(0, 3, 1, 0)
    torch.rand(5)
    assert torch.equal(first, sample(0, 3, 1, 0))
    for other_key in [(1, 3, 1, 0), (0, 4, 1, 0), (0, 3, 0, 0), (0, 3, 1, 1)]:
        assert not torch.equal(first, sample(*other_key))
