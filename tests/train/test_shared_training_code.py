"""Supervised and reinforcement learning share validation, determinism check, divergence check, clipping and outcome."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from hqlt_lab.rundir.diagnostics import DeterminismCheck, read_determinism_check
from hqlt_lab.train.determinism_check import find_differences, record_determinism_check
from hqlt_lab.train.divergence import DivergenceError, clip_gradients, compute_gradient_norm, raise_if_not_finite
from hqlt_lab.train.trainer_state import TrainerState, record_validation
from tests.train.conftest import tiny_cell

TRAIN = Path(__file__).parents[2] / "hqlt_lab/train"
SINGLE_IMPLEMENTATIONS = {
    "clip_grads_with_norm_(": "divergence.py",
    "get_total_norm(": "divergence.py",
    "DivergenceError(": "divergence.py",
    "DIVERGED_FILE": "divergence.py",
    " Outcome(": "build_outcome.py",
    "measure_sizes(": "build_outcome.py",
    "read_checkpoint(folder / BEST_CHECKPOINT)": "build_outcome.py",
    ".update_best(": "trainer_state.py",
    "selection_value(": "trainer_state.py",
    "is_bitwise_equal(": "determinism_check.py",
    "torch.autograd.grad(": "determinism_check.py",
    "warning_message": "determinism_check.py",
}


@pytest.mark.parametrize("text, module", SINGLE_IMPLEMENTATIONS.items())
def test_each_piece_of_shared_logic_is_written_once(text, module):
    users = {file.relative_to(TRAIN).as_posix() for file in TRAIN.rglob("*.py") if text in file.read_text()}
    assert users == {module}


@pytest.mark.parametrize("clip, expected", [(None, 5.0), (10.0, 5.0), (1.0, 1.0)])
def test_gradients_are_clipped_to_the_largest_norm_allowed(clip, expected):
    layers = nn.ModuleList([nn.Linear(1, 2, bias=False), nn.Linear(1, 1, bias=False), nn.Linear(1, 1)])
    layers[0].weight.grad, layers[1].weight.grad = torch.tensor([[0.0], [3.0]]), torch.tensor([[4.0]])
    norm = compute_gradient_norm(layers.parameters())
    clip_gradients(layers.parameters(), clip, norm)
    assert norm == 5 and compute_gradient_norm(layers.parameters()).item() == pytest.approx(expected, rel=1e-5)


def test_divergence_error_holds_the_step():
    raise_if_not_finite(3, 1.0, 2.0, allow_overflow=False)
    raise_if_not_finite(3, 1.0, torch.inf, allow_overflow=True)
    for loss, norm in ((torch.nan, 1.0), (1.0, torch.inf)):
        with pytest.raises(DivergenceError) as error:
            raise_if_not_finite(3, loss, norm, allow_overflow=False)
        assert error.value.step == 3


@pytest.mark.parametrize("accuracy, step, finished, notes", [(50, 1, False, 0), (50, 6, True, 0), (90, 1, True, 1)])
def test_validation_finishes_a_run_that_is_solved_or_at_its_last_step(accuracy, step, finished, notes):
    cell = tiny_cell()
    cell = replace(cell, train=replace(cell.train, stop_at=90, steps=6))
    trainer_state = TrainerState()
    record_validation(trainer_state, cell, step, {cell.measure.select: accuracy})
    assert (trainer_state.finished, len(trainer_state.notes), trainer_state.last) == (
        finished,
        notes,
        {cell.measure.select: accuracy},
    )


def test_best_weights_are_saved_only_where_they_are_used():
    cell = tiny_cell()
    values = [10.0, 30.0, 20.0]
    for keep, report, expected in (("last", "last", [False] * 3), ("best", "last", [True, True, False])):
        used = replace(cell, train=replace(cell.train, keep=keep, report=report, steps=100))
        trainer_state = TrainerState()
        saved = [record_validation(trainer_state, used, 1, {cell.measure.select: value}) for value in values]
        assert saved == expected and trainer_state.best == {cell.measure.select: 30.0}


def test_differences_between_two_computations_are_named():
    numbers = iter(range(10))
    assert find_differences(lambda: {"same": torch.ones(2), "other": torch.tensor(float(next(numbers)))}) == ["other"]


@pytest.mark.parametrize("deterministic", [True, False])
def test_failed_determinism_check_is_noted_where_determinism_was_requested(deterministic, tmp_path):
    cell, trainer_state, check = tiny_cell(), TrainerState(), DeterminismCheck(False, ["loss"])
    cell = replace(cell, trainer=replace(cell.trainer, deterministic=deterministic))
    record_determinism_check(check, cell, trainer_state, tmp_path)
    assert len(trainer_state.notes) == deterministic and read_determinism_check(tmp_path) == check
