"""flex_attention masks as the schedule says; on a CPU torch has its forward only."""

import gc
import weakref

import pytest
import torch

from hqlt_lab.ops import flex
from hqlt_lab.ops.attention import attend, attend_dense
from hqlt_lab.ops.flex import attend_by_flex
from hqlt_lab.ops.schedule import Schedule
from tests.ops.test_attention import SCHEDULES
from tests.ops.test_flash import places


def example(past=0, length=53):
    shapes = ((2, 3, length, 16), (2, 3, past + length, 16), (2, 3, past + length, 16))
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


@pytest.mark.parametrize("past", [0, 9])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_it_sees_what_the_schedule_shows(schedule, packed, past):
    inputs, place = example(past), places() if packed else None
    torch.testing.assert_close(attend(*inputs, schedule, place, backend="flex"), attend_dense(*inputs, schedule, place))


def test_layers_that_read_the_same_documents_share_a_mask():
    place, schedule = places(), Schedule(window=3)
    mask = flex.mask(schedule, 53, 53, place, place.device)
    attend_by_flex(*example(), schedule, place)
    assert flex.mask(schedule, 53, 53, place, place.device) is mask
    assert flex.mask(Schedule(window=4), 53, 53, place, place.device) is not mask


def test_only_the_masks_of_the_latest_batch_are_kept():
    old = places()
    flex.mask(Schedule(window=3), 53, 53, old, old.device)
    gone = weakref.ref(old)
    new = places()
    flex.mask(Schedule(window=3), 53, 53, new, new.device)
    del old
    gc.collect()
    assert gone() is None
