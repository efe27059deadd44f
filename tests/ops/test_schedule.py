"""What a schedule shows to whom: pure booleans."""

import pytest
import torch

from hqlt_lab.errors import ConfigError
from hqlt_lab.ops.schedule import Schedule
from hqlt_lab.registry import available, build

T = 20


@pytest.fixture(params=available("timing"))
def schedule(request):
    return build("timing", {"name": request.param, "window": 6})


def test_every_past_token_is_in_some_memory(schedule):
    seen = schedule.fast_weights_see(T) | schedule.softmax_sees(T)
    assert torch.equal(seen, torch.ones(T, T).tril().bool())


def test_the_delayed_timings_hold_each_token_once(schedule):
    both = schedule.fast_weights_see(T) & schedule.softmax_sees(T)
    assert both.any() == (schedule.waits == 0)


def test_a_window_holds_as_many_tokens_as_it_says_the_current_one_included():
    sees = Schedule(window=6).softmax_sees(T)
    assert sees.sum(1).tolist() == [min(t + 1, 6) for t in range(T)]
    assert sees.diagonal().all()


def test_synchronous_fast_weights_see_the_current_token():
    assert build("timing", "synchronous").fast_weights_see(T).diagonal().all()


def test_delayed_chunk_reads_the_state_before_its_chunk():
    sees = build("timing", {"name": "delayed_chunk", "window": 6}).fast_weights_see(T)
    assert sees.sum(1).tolist() == [t // 6 * 6 for t in range(T)]


def test_a_hold_longer_than_the_window_leaves_tokens_in_neither_memory():
    schedule = build("timing", {"name": "delayed_chunk", "window": 4, "hold": 8})
    seen = schedule.fast_weights_see(T) | schedule.softmax_sees(T)
    assert not seen[6, 3] and not seen[6, 0] and seen[8, 3]


@pytest.mark.parametrize("words", [{"window": 0}, {"block": -1}, {"hold": 0}, {"delay": -1}])
def test_lengths_that_make_no_sense_are_refused(words):
    with pytest.raises(ConfigError, match=r"at least [01] is needed, got"):
        Schedule(**words)
