"""Masks of schedules: which tokens each memory shows."""

import pytest
import torch

from hqlt_lab.ops.memory_schedule import Schedule
from hqlt_lab.registry import available, build
from tests.issues import raises_issue

T = 20


@pytest.fixture(params=available("timing"))
def schedule(request):
    return build("timing", {"name": request.param, "window": 6})


def test_every_past_token_is_in_some_memory(schedule):
    visible = schedule.fast_weight_mask(T) | schedule.softmax_mask(T)
    assert torch.equal(visible, torch.ones(T, T).tril().bool())


def test_delayed_timings_hold_each_token_once(schedule):
    in_both = schedule.fast_weight_mask(T) & schedule.softmax_mask(T)
    assert in_both.any() == (schedule.max_pending_tokens == 0)


def test_window_size_includes_the_current_token():
    visible = Schedule(window=6).softmax_mask(T)
    assert visible.sum(1).tolist() == [min(t + 1, 6) for t in range(T)]
    assert visible.diagonal().all()


def test_synchronous_fast_weights_see_the_current_token():
    assert build("timing", "synchronous").fast_weight_mask(T).diagonal().all()


def test_delayed_chunk_reads_the_state_from_before_its_chunk():
    visible = build("timing", {"name": "delayed_chunk", "window": 6}).fast_weight_mask(T)
    assert visible.sum(1).tolist() == [t // 6 * 6 for t in range(T)]


def test_hold_longer_than_the_window_leaves_tokens_in_neither_memory():
    schedule = build("timing", {"name": "delayed_chunk", "window": 4, "hold": 8})
    visible = schedule.fast_weight_mask(T) | schedule.softmax_mask(T)
    assert not visible[6, 3] and not visible[6, 0] and visible[8, 3]


@pytest.mark.parametrize("settings", [{"window": 0}, {"block": -1}, {"hold": 0}, {"delay": -1}])
def test_invalid_lengths_are_rejected(settings):
    with raises_issue(*settings, "below_minimum"):
        Schedule(**settings)
