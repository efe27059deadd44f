"""Attention with flex_attention equals dense attention.  On a CPU torch supports its forward pass only."""

import gc
import weakref

import pytest
import torch

from hqlt_lab.ops.attention import flex
from hqlt_lab.ops.attention.flex import attend_by_flex
from hqlt_lab.ops.attention.scheduled_softmax import attend, attend_dense
from hqlt_lab.ops.memory_schedule import Schedule
from tests.ops.test_attention import SCHEDULES
from tests.ops.test_flash import document_positions


def make_qkv(past=0, length=53):
    shapes = ((2, 3, length, 16), (2, 3, past + length, 16), (2, 3, past + length, 16))
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


@pytest.mark.parametrize("past", [0, 9])
@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_flex_attention_equals_dense_attention(schedule, is_packed, past):
    inputs, position = make_qkv(past), document_positions() if is_packed else None
    torch.testing.assert_close(
        attend(*inputs, schedule, position, backend="flex"), attend_dense(*inputs, schedule, position)
    )


def test_layers_with_the_same_positions_share_a_mask():
    position, schedule = document_positions(), Schedule(window=3)
    mask = flex.get_block_mask(schedule, 53, 53, position, position.device)
    attend_by_flex(*make_qkv(), schedule, position)
    assert flex.get_block_mask(schedule, 53, 53, position, position.device) is mask
    assert flex.get_block_mask(Schedule(window=4), 53, 53, position, position.device) is not mask


def test_only_masks_of_the_latest_batch_are_cached():
    old = document_positions()
    flex.get_block_mask(Schedule(window=3), 53, 53, old, old.device)
    old_reference = weakref.ref(old)
    new = document_positions()
    flex.get_block_mask(Schedule(window=3), 53, 53, new, new.device)
    del old
    gc.collect()
    assert old_reference() is None
