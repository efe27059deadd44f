"""Attention with flash-attn equals dense attention.  Uses a fake of flash-attn; tests/gpu tests the kernels."""

import sys

import pytest
import torch

from hqlt_lab.ops.attention.flash import attend_by_flash
from hqlt_lab.ops.attention.scheduled_softmax import attend_dense
from hqlt_lab.ops.memory_schedule import Schedule
from tests.ops import fake_flash_attn
from tests.ops.test_attention import SCHEDULES


@pytest.fixture(autouse=True)
def flash_attn(monkeypatch):
    monkeypatch.setitem(sys.modules, "flash_attn", fake_flash_attn.make_fake_module())
    fake_flash_attn.calls.clear()


def make_qkv(length=53):
    return [torch.randn(2, 3, length, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]


def document_positions(length=53):
    doc_start = torch.zeros(2, length, dtype=torch.bool)
    doc_start[0, [0, 7, 8, 30]] = doc_start[1, [0, 41]] = True
    index = torch.arange(length)
    return index - torch.where(doc_start, index, -1).cummax(1).values


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_flash_attention_equals_dense_attention(schedule, is_packed):
    inputs, position = make_qkv(), document_positions() if is_packed else None
    actual, expected = (attend(*inputs, schedule, position) for attend in (attend_by_flash, attend_dense))
    torch.testing.assert_close(actual, expected)
    weights = torch.randn_like(expected)
    grads = [torch.autograd.grad((output * weights).sum(), inputs) for output in (actual, expected)]
    torch.testing.assert_close(*grads)


def test_blocks_and_documents_are_separate_sequences():
    attend_by_flash(*make_qkv(), Schedule(block=5))
    assert fake_flash_attn.calls[-1]["sequences"] == 2 * 11
    fake_flash_attn.calls.clear()
    attend_by_flash(*make_qkv(), Schedule(block=10), document_positions())
    assert len(fake_flash_attn.calls) == (1 + 1 + 3 + 3) + (5 + 2)


def test_deterministic_flag_is_passed_on():
    attend_by_flash(*make_qkv(), Schedule(window=3))
    torch.use_deterministic_algorithms(True)
    try:
        attend_by_flash(*make_qkv(), Schedule(window=3))
    finally:
        torch.use_deterministic_algorithms(False)
    assert [call["deterministic"] for call in fake_flash_attn.calls] == [False, True]
