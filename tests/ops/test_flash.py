"""flash-attn is asked for what the schedule says, by what it documents; tests/gpu asks the kernels themselves."""

import sys

import pytest
import torch

from hqlt_lab.ops.attention import attend_dense
from hqlt_lab.ops.flash import attend_by_flash
from hqlt_lab.ops.schedule import Schedule
from tests.ops import flash_contract
from tests.ops.test_attention import SCHEDULES


@pytest.fixture(autouse=True)
def flash_attn(monkeypatch):
    monkeypatch.setitem(sys.modules, "flash_attn", flash_contract.module())
    flash_contract.calls.clear()


def example(length=53):
    return [torch.randn(2, 3, length, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]


def places(length=53):
    starts = torch.zeros(2, length, dtype=torch.bool)
    starts[0, [0, 7, 8, 30]] = starts[1, [0, 41]] = True
    index = torch.arange(length)
    return index - torch.where(starts, index, -1).cummax(1).values


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_it_sees_what_the_schedule_shows(schedule, packed):
    inputs, place = example(), places() if packed else None
    fast, slow = (attend(*inputs, schedule, place) for attend in (attend_by_flash, attend_dense))
    torch.testing.assert_close(fast, slow)
    weights = torch.randn_like(slow)
    grads = [torch.autograd.grad((answer * weights).sum(), inputs) for answer in (fast, slow)]
    torch.testing.assert_close(*grads)


def test_blocks_and_documents_are_sequences_of_their_own():
    attend_by_flash(*example(), Schedule(block=5))
    assert flash_contract.calls[-1]["sequences"] == 2 * 11
    flash_contract.calls.clear()
    attend_by_flash(*example(), Schedule(block=10), places())
    assert len(flash_contract.calls) == (1 + 1 + 3 + 3) + (5 + 2)


def test_deterministic_is_handed_on():
    attend_by_flash(*example(), Schedule(window=3))
    torch.use_deterministic_algorithms(True)
    try:
        attend_by_flash(*example(), Schedule(window=3))
    finally:
        torch.use_deterministic_algorithms(False)
    assert [call["deterministic"] for call in flash_contract.calls] == [False, True]
